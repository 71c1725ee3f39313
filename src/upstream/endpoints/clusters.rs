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
        let uid_of = |one: &ApiServer| one.uid.lock().clone();
        let trusted: Vec<String> = (servers.iter())
            .filter(|one| one.origin != Origin::Discovery)
            .filter_map(|one| uid_of(one))
            .collect();
        *cluster = agreed(cluster.take(), &trusted);
        let Some(cluster) = &*cluster else { return };
        for one in servers.iter() {
            if let Some(uid) = uid_of(one) {
                one.admit(match uid == *cluster {
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
        let count = servers.iter().filter(|one| one.is_unverified()).count();
        self.metrics.unverified.set(crate::telemetry::metrics::saturating_i64(count));
        count
    }
}

/// Returns the uid of most, or `known` if as many have it as any other.
fn agreed(known: Option<String>, uids: &[String]) -> Option<String> {
    let count = |uid: &String| uids.iter().filter(|one| *one == uid).count();
    let most = uids.iter().max_by_key(|uid| count(uid));
    match (known, most) {
        (Some(known), Some(most)) if count(&known) < count(most) => Some(most.clone()),
        (Some(known), _) => Some(known),
        (None, most) => most.cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::agreed;

    #[test]
    fn most_of_the_trusted_servers_decide_and_a_tie_changes_nothing() {
        let uids = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let known = |uid: &str| Some(uid.to_owned());
        assert_eq!(agreed(None, &uids("")), None);
        assert_eq!(agreed(None, &uids("b")), known("b"));
        assert_eq!(agreed(known("a"), &uids("")), known("a"));
        assert_eq!(agreed(known("a"), &uids("ab")), known("a"), "one was replaced");
        assert_eq!(agreed(known("a"), &uids("abb")), known("b"));
        assert_eq!(agreed(known("a"), &uids("b")), known("b"), "all were replaced");
    }
}
