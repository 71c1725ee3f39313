//! The open connections of the admin listener. Their number is limited, and a new one takes the
//! place of one that nobody uses: probes must get in, or the kubelet ends the pod.

use std::time::Duration;

use tokio::task::AbortHandle;

use crate::server::connection::activity::ConnActivity;

/// The open connections, the oldest first.
#[derive(Default)]
pub(super) struct OpenConnections(Vec<OpenConnection>);

struct OpenConnection {
    task: AbortHandle,
    activity: ConnActivity,
}

impl OpenConnections {
    /// Makes room for a connection, and returns how many places are left with it. If all places are
    /// taken, the oldest connection without an open request is closed, or one whose client has not
    /// read its answer for long. Returns `None` if there is none of them.
    pub(super) fn make_room(&mut self) -> Option<usize> {
        self.0.retain(|connection| !connection.task.is_finished());
        if self.0.len() >= CONNECTIONS_MAX {
            let mut connections = self.0.iter();
            let idle = connections.position(|connection| connection.activity.is_idle());
            let unread =
                || self.0.iter().position(|connection| connection.activity.age() > BUSY_MAX);
            self.0.remove(idle.or_else(unread)?).task.abort();
        }
        Some(CONNECTIONS_MAX - self.0.len() - 1)
    }

    /// Adds a connection, which `task` serves.
    pub(super) fn add(&mut self, task: AbortHandle, activity: ConnActivity) {
        self.0.push(OpenConnection { task, activity });
    }
}

/// Probes, a few Prometheus servers and people need far fewer.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// No answer takes as long.
const BUSY_MAX: Duration = Duration::from_secs(60);
