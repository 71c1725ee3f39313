//! One request, and what Weir has learnt about it.

use std::sync::Arc;

use http::request::Parts;

use crate::api::request_info::RequestInfo;
use crate::api::resource::ApiResource;
use crate::server::connection::client::Client;
use crate::server::metrics::ResourceMetrics;
use crate::server::request::auth::AuthContext;

/// One request, and what Weir has learnt about it.
pub(crate) struct RequestContext<'a> {
    /// The client that sent it.
    pub(crate) client: &'a Client,
    /// Its head. Forwarding takes it out.
    pub(crate) parts: Parts,
    /// Whether it has a body.
    pub(crate) has_body: bool,
    /// The one parse of its path and query, which is what is authorized and what is served.
    pub(crate) info: RequestInfo,
    /// Its resource as discovery describes it, looked up once. `None` if it is not known yet.
    pub(crate) resource: Option<Arc<ApiResource>>,
    /// The metrics of the resource.
    pub(crate) metrics: Arc<ResourceMetrics>,
    /// The results of authentication and authorization.
    pub(crate) auth: AuthContext,
}
