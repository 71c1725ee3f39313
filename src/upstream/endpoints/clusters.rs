//! Which cluster each API server serves: the uid of its namespace kube-system.
//!
//! The configured and the static servers are trusted: most of those that have answered serve the
//! cluster of the upstream. When they disagree in equal numbers, the cluster stays the one that was
//! known. A server of another cluster is not used, whatever its origin; a found one is used only
//! after its uid is known. All is computed again with each answer, so that a cluster that is
//! replaced behind all addresses is followed.
//!
//! Lock: that of the known uid, held for a few instructions, before those of the servers' uids.

use std::sync::atomic::Ordering;

use super::{Admission, ApiServer, Endpoints, Origin};

impl Endpoints {
    /// Notes the uid that a server answered; `None` if Weir may not read it.
    pub(crate) fn note_uid(&self, server: &ApiServer, uid: Option<String>) {
        let mut cluster = self.cluster.lock();
        match uid {
            Some(uid) => *server.uid.lock() = Some(uid),
            None => return self.note_unreadable(server),
        }
        let servers = self.servers();
        let uid_of = |server: &ApiServer| server.uid.lock().clone();
        let trusted: Vec<String> = (servers.iter())
            .filter(|server| server.origin != Origin::Discovery)
            .filter_map(|server| uid_of(server))
            .collect();
        *cluster = agreed(cluster.take(), &trusted);
        let Some(cluster) = &*cluster else { return };
        for server in servers.iter() {
            if let Some(uid) = uid_of(server) {
                server.admit(match uid == *cluster {
                    true => Admission::SameCluster,
                    false => Admission::OtherCluster,
                });
            }
        }
        self.count_unverified();
    }

    /// An API server that starts refuses everything for a moment, so that a server that was
    /// identified before stays so.
    fn note_unreadable(&self, server: &ApiServer) {
        if server.origin == Origin::Discovery && server.admission() == Admission::Unknown {
            server.set_unverified();
        }
        if self.count_unverified() > 0 && !self.unverified_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the namespace kube-system may not be read, so that API servers that DNS or EndpointSlices name are not used; allow Weir to list namespaces, or name the servers in upstream.endpoints.static"
            );
        }
    }

    fn count_unverified(&self) -> usize {
        let servers = self.servers();
        let count = servers.iter().filter(|server| server.is_unverified()).count();
        self.metrics.unverified.set(crate::telemetry::metrics::saturating_i64(count));
        count
    }
}

/// Returns the uid of most, or `current` if as many have it as any other.
fn agreed(current: Option<String>, uids: &[String]) -> Option<String> {
    let count = |uid: &String| uids.iter().filter(|candidate| *candidate == uid).count();
    let most = uids.iter().max_by_key(|uid| count(uid));
    match (current, most) {
        (Some(current), Some(most)) if count(&current) < count(most) => Some(most.clone()),
        (Some(current), _) => Some(current),
        (None, most) => most.cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::agreed;

    #[test]
    fn most_of_the_trusted_servers_decide_and_a_tie_changes_nothing() {
        let uids = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let uid_of = |uid: &str| Some(uid.to_owned());
        assert_eq!(agreed(None, &uids("")), None);
        assert_eq!(agreed(None, &uids("b")), uid_of("b"));
        assert_eq!(agreed(uid_of("a"), &uids("")), uid_of("a"));
        assert_eq!(agreed(uid_of("a"), &uids("ab")), uid_of("a"), "one was replaced");
        assert_eq!(agreed(uid_of("a"), &uids("abb")), uid_of("b"));
        assert_eq!(agreed(uid_of("a"), &uids("b")), uid_of("b"), "all were replaced");
    }
}
