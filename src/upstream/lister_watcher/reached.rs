//! Whether an API server has caught up with a resourceVersion: a list that is not older makes its
//! watch cache ask etcd for its progress (`docs/semantics.md` §2.3).

use std::time::Duration;

use http::StatusCode;

use super::http::HttpListWatch;
use super::list_watch::ListRequest;
use super::query::list_query;
use crate::api::resource_version::ResourceVersion;
use crate::upstream::bounded::{read_body, with_timeout};
use crate::upstream::error::UpstreamError;
use crate::upstream::one_server::OneServer;
use crate::upstream::{Choice, TrafficClass};

/// The longest wait until an API server has caught up: it asks etcd for its progress at once, and
/// every 100 ms from then on.
const CATCH_UP_TIMEOUT: Duration = Duration::from_millis(500);
/// How many API servers may be asked to catch up, one after the other.
const CATCH_UP_ATTEMPTS: u32 = 2;
/// How long an API server has to reach what another one has shown. It waits for 3 s itself.
const REACH_TIMEOUT: Duration = Duration::from_secs(4);

impl HttpListWatch {
    /// Returns a connection to an API server whose watch cache has reached `resource_version`. A
    /// list that is not older makes the watch cache ask etcd for its progress
    /// (`docs/semantics.md` §2.3).
    pub(super) async fn server_at(
        &self,
        resource_version: ResourceVersion,
    ) -> Result<OneServer, UpstreamError> {
        let path_and_query = self.path_not_older(resource_version);
        let mut attempt = 1;
        loop {
            let caught_up = async {
                let mut server = OneServer::connect_by(&self.upstream, &self.choice()).await?;
                let get = self.request(&path_and_query, TrafficClass::Request, CATCH_UP_TIMEOUT);
                let response = get.send_to(&mut server).await?;
                read_body(response.into_body(), (self.max_list_bytes)()).await?;
                Ok(server)
            };
            match with_timeout(CATCH_UP_TIMEOUT, caught_up).await {
                Err(error) if attempt < CATCH_UP_ATTEMPTS => {
                    tracing::debug!(%error, "an API server does not catch up; trying another connection");
                }
                caught_up => return caught_up,
            }
            attempt += 1;
        }
    }

    /// Returns whether the API server that sent the last watch has reached `resource_version`, for
    /// which it has some seconds. Asks it only if the watch before came from another one.
    pub(super) async fn server_of_watch_has_reached(
        &self,
        resource_version: ResourceVersion,
    ) -> Result<bool, UpstreamError> {
        let Some(server) = self.pin.unconfirmed() else { return Ok(true) };
        let path_and_query = self.path_not_older(resource_version);
        let reached = async {
            let choice = Choice::Only(server);
            let mut server = OneServer::connect_by(&self.upstream, &choice).await?;
            let get = self.request(&path_and_query, TrafficClass::Request, REACH_TIMEOUT);
            let response = get.send_to(&mut server).await?;
            read_body(response.into_body(), (self.max_list_bytes)()).await
        };
        match with_timeout(REACH_TIMEOUT, reached).await {
            Ok(_) => Ok(self.pin.confirm(server)),
            Err(UpstreamError::Timeout(_)) => Ok(false),
            Err(UpstreamError::Status { code: StatusCode::GATEWAY_TIMEOUT, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of a list of one object, not older than a resourceVersion.
    fn path_not_older(&self, resource_version: ResourceVersion) -> String {
        let request =
            ListRequest { limit: Some(1), ..ListRequest::not_older(Some(resource_version)) };
        self.path_and_query(&list_query(&request))
    }
}
