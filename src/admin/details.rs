//! Responses with details, which are made on blocking threads, a few at once.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};

use crate::admin::api::{Answer, Kind, Query};
use crate::admin::respond::{
    accepts_gzip, busy, detailed, method_not_allowed, not_in_shadow, shared, text,
};
use crate::admin::{Connection, OFF, Pages, detail};
use crate::server::http::body::Body;

impl Pages {
    /// Returns details, to those who may see them.
    pub(super) async fn details<B>(
        self: &Arc<Self>,
        connection: Connection,
        request: &Request<B>,
        kind: Kind,
    ) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return method_not_allowed("GET, HEAD");
        }
        let api = match self.check_detail(connection, request) {
            Ok(api) => api,
            Err(refusal) => return *refusal,
        };
        let query = request.uri().query().unwrap_or_default();
        if kind == Kind::Shadow
            && detail::parameter(query, "format").is_some_and(|format| format == "text")
        {
            return api.shadow_text().map_or_else(not_in_shadow, |report| {
                detailed(connection.is_scarce, text(StatusCode::OK, report))
            });
        }
        let query = Query::parse(kind, query);
        let made = match api.shared(&query) {
            Some(answer) => Some(Some(answer)),
            None => self.make(query, accepts_gzip(request.headers())).await,
        };
        match made {
            Some(Some(answer)) => {
                detailed(connection.is_scarce, shared(request, "application/json", &answer))
            }
            Some(None) if kind == Kind::Shadow => not_in_shadow(),
            Some(None) => text(StatusCode::NOT_FOUND, OFF),
            None => detailed(connection.is_scarce, busy()),
        }
    }

    /// Makes a response on a blocking thread. The inner `None` means that this detail is off, the
    /// outer one that too many are being made.
    async fn make(
        self: &Arc<Self>,
        query: Query,
        is_compressed: bool,
    ) -> Option<Option<Arc<Answer>>> {
        let pages = Arc::clone(self);
        let work = move || {
            let answer = pages.api.as_ref()?.answer(query, &pages.checks)?;
            // The answer keeps the compressed form, so that the connection's thread does not
            // compress it.
            let _compressed = is_compressed.then(|| answer.gzip());
            Some(answer)
        };
        self.gate.run(work).await
    }
}
