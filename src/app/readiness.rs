//! The checks of `/readyz`.

use tokio_util::sync::CancellationToken;

use crate::admin::health::{Checks, Health};
use crate::app::probe::Probe;
use crate::cache::registry::Registry;
use crate::upstream::discovery::Discovery;

/// Returns the checks of `/readyz`.
pub(super) fn checks(
    (probe, discovery, registry): (&Probe, &Discovery, &Registry),
    [started, stopping]: [&CancellationToken; 2],
) -> Checks {
    let (probe, discovery, registry) = (probe.clone(), discovery.clone(), registry.clone());
    let caches = registry.clone();
    Checks::new()
        .ready("upstream", move || match probe.health() {
            Err(_) if caches.answers_alone() => Ok(()),
            health => health,
        })
        .ready("discovery", move || match discovery.is_synced() {
            true => Ok(()),
            false => Err("the upstream's resources are not known yet".to_owned()),
        })
        .ready("warm-caches", move || match registry.unready() {
            unready if unready.is_empty() => Ok(()),
            unready => Err(format!("not filled yet: {}", unready.join(", "))),
        })
        .ready("startup", when(started, true, "process is starting"))
        .ready("shutdown", when(stopping, false, "process is shutting down"))
}

/// Passes while a token is (or is not) cancelled.
fn when(
    token: &CancellationToken,
    cancelled: bool,
    otherwise: &'static str,
) -> impl Fn() -> Health + Send + Sync + 'static {
    let token = token.clone();
    move || if token.is_cancelled() == cancelled { Ok(()) } else { Err(otherwise.to_owned()) }
}
