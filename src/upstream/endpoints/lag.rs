//! Measures how far the watch cache of one API server lags behind etcd.
//!
//! Only a read of an object that changes all the time shows it: the resourceVersion of a quiet
//! resource is old on a healthy server, too. kube-controller-manager renews its lease every two
//! seconds. It is read from the server's watch cache, then consistently; the difference of the two
//! times of renewal is the lag. A server that is more than [`BEHIND_MAX`] behind in three checks in
//! a row gets no reads that may show an older state, until one check finds it up to date.
//!
//! Where Weir may not read the lease, or there is none, nothing is known about the lag.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::prober::Checked;
use crate::upstream::bounded::{read_body, with_timeout};
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::Get;
use crate::upstream::one_server::OneServer;

/// Checks a server until the future is dropped.
pub(super) async fn run(checked: &Checked) {
    let mut lag = Lag::default();
    loop {
        let interval = match with_timeout(TIMEOUT, check(checked)).await {
            Ok(Some(behind)) => {
                lag.note(behind);
                checked.server.set_lagging(lag.is_lagging());
                INTERVAL
            }
            Ok(None) => {
                tracing::debug!("cannot read kube-controller-manager's lease; its age is unknown");
                lag = Lag::default();
                checked.server.set_lagging(false);
                UNKNOWN_INTERVAL
            }
            Err(error) => {
                tracing::debug!(%error, "cannot check the lag of an API server");
                INTERVAL
            }
        };
        tokio::time::sleep(interval.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
    }
}

/// The latest checks of one server.
#[derive(Debug, Default)]
struct Lag {
    /// The checks in a row that found the server too far behind.
    behind_count: u32,
}

impl Lag {
    fn note(&mut self, behind: Duration) {
        let is_behind = behind > BEHIND_MAX;
        self.behind_count = if is_behind { self.behind_count.saturating_add(1) } else { 0 };
    }

    fn is_lagging(&self) -> bool {
        self.behind_count >= BEHIND_COUNT
    }
}

/// Returns how far the server's watch cache is behind; `None` if the lease cannot be read.
async fn check(checked: &Checked) -> Result<Option<Duration>, UpstreamError> {
    let mut server = checked.connect().await?;
    let Some(cached) = renewal(&mut server, CACHED).await? else { return Ok(None) };
    let Some(latest) = renewal(&mut server, CONSISTENT).await? else { return Ok(None) };
    Ok(Some(latest.duration_since(cached).try_into().unwrap_or_default()))
}

/// Reads the time of the lease's last renewal; `None` if there is no such lease, or Weir may not
/// read it.
async fn renewal(
    server: &mut OneServer,
    path_and_query: &str,
) -> Result<Option<Timestamp>, UpstreamError> {
    let get = Get { timeout: TIMEOUT, ..Get::json(path_and_query) };
    match get.send_to(server).await {
        Ok(answer) => Ok(parse(&read_body(answer.into_body(), BODY_MAX_BYTES).await?)),
        Err(UpstreamError::Status { code, .. }) if code.is_client_error() && code != 429 => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the `renewTime` of the only lease in a list.
fn parse(body: &[u8]) -> Option<Timestamp> {
    let list: Value = serde_json::from_slice(body).ok()?;
    list.pointer("/items/0/spec/renewTime")?.as_str()?.parse().ok()
}

/// The lease as a list of one: a role that may list the leases need not allow to get one.
const CONSISTENT: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                          ?fieldSelector=metadata.name%3Dkube-controller-manager";
const CACHED: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                      ?fieldSelector=metadata.name%3Dkube-controller-manager&resourceVersion=0";
/// The mean time between two checks, and where the lease cannot be read.
const INTERVAL: Duration = Duration::from_secs(10);
const UNKNOWN_INTERVAL: Duration = Duration::from_secs(600);
/// The lag that counts: a renewal happens every 2 s, and may fall between the two reads.
const BEHIND_MAX: Duration = Duration::from_secs(5);
/// The checks in a row that must find it.
const BEHIND_COUNT: u32 = 3;
/// The longest time of a check. A consistent read waits for the watch cache for up to 3 s.
const TIMEOUT: Duration = Duration::from_secs(8);
/// The largest response. A lease has less than a kilobyte.
const BODY_MAX_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests;
