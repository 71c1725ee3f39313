//! The client of a connection, as its requests see it.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::auth::peer::Peer;
use crate::auth::user::{Credential, Identity, User, UserKey};
use crate::codec::held_bytes::HeldBytes;
use crate::server::accept::listener::ListenerKind;
use crate::server::connection::activity::ConnActivity;
use crate::server::connection::client_id::ClientId;
use crate::server::connection::list::ListedConnection;
use crate::server::connection::permits::{ConnectionPermit, UserAtLimit};
use crate::server::drain::ConnectionDrain;
use crate::server::flow_control::memo::FlowMemo;

pub(crate) struct Client {
    /// The number of the connection in this process.
    pub(crate) number: u64,
    pub(crate) listener: ListenerKind,
    pub(crate) peer: Peer,
    /// The last user of the connection, for classification.
    pub(crate) flows: FlowMemo,
    /// When the connection and its watches end if Weir drains.
    pub(crate) drain: ConnectionDrain,
    pub(crate) standing: ConnectionStanding,
    /// Shows the connection to operators.
    pub(crate) listed: Option<ListedConnection>,
}

/// The part of a connection in the limits: its permit, and the account of its last user.
#[derive(Debug, Default)]
pub(crate) struct ConnectionStanding {
    /// The permit, as long as the socket is open.
    permit: Weak<ConnectionPermit>,
    /// Whether the connection counts for a user. Never false again, so that later requests take no
    /// lock.
    is_moved: AtomicBool,
    last: Mutex<Option<LastAccount>>,
}

/// The account of what responses hold in memory for the last user of the connection. Most
/// connections have one user.
#[derive(Debug)]
struct LastAccount {
    /// `None` for the address.
    user: Option<UserKey>,
    held: HeldBytes,
}

impl Client {
    /// Counts the connection for a user that one of its requests has proved, no longer for its
    /// address. A front proxy's connection has many users and stays with its address. If the user
    /// has too many connections, this one is closed after its open requests.
    pub(crate) fn prove(&self, identity: &Identity) -> Result<(), UserAtLimit> {
        let is_own = matches!(identity.credential, Credential::Certificate | Credential::Token);
        if self.standing.is_moved() || !is_own || identity.user.is_anonymous() {
            return Ok(());
        }
        self.move_to(identity.user.name_key())
    }

    /// Does the same for the key of a user's name.
    pub(crate) fn move_to(&self, user: UserKey) -> Result<(), UserAtLimit> {
        if self.standing.is_moved() {
            return Ok(());
        }
        let moved = self.standing.permit.upgrade().map_or(Ok(()), |permit| permit.move_to(user));
        match moved {
            Ok(()) => self.standing.is_moved.store(true, Ordering::Relaxed),
            Err(UserAtLimit) => self.drain.started().cancel(),
        }
        moved
    }

    /// Keeps the connection open, also if it has proved no user: it carries another protocol now.
    pub(crate) fn keep(&self) {
        if let Some(permit) = self.standing.permit.upgrade() {
            permit.eviction().keep();
        }
    }

    /// Keeps the connection open, also while its client reads nothing: a consumer of
    /// `kubectl exec` may pause for as long as it likes.
    pub(crate) fn splice(&self) {
        if let Some(permit) = self.standing.permit.upgrade() {
            permit.eviction().splice();
        }
    }

    /// Returns the account of what responses hold in memory for `user`, or for the address if it is
    /// not known. `find` finds the account of a client.
    pub(crate) fn held(
        &self,
        user: Option<&User>,
        find: impl FnOnce(ClientId) -> HeldBytes,
    ) -> HeldBytes {
        let key = user.map(User::key);
        let mut last = self.standing.last.lock();
        if let Some(last) = last.as_ref().filter(|last| last.user == key) {
            return last.held.clone();
        }
        let held = find(ClientId::from_user_or_address(user, self.peer.address));
        *last = Some(LastAccount { user: key, held: held.clone() });
        held
    }
}

impl ConnectionStanding {
    pub(crate) fn new(permit: Weak<ConnectionPermit>) -> Self {
        Self { permit, ..Self::default() }
    }

    /// Sets the activity of the connection, which is not closed to make room while it is busy.
    pub(crate) fn serve(&self, activity: &ConnActivity) {
        if let Some(permit) = self.permit.upgrade() {
            permit.eviction().serve(activity);
        }
    }

    fn is_moved(&self) -> bool {
        self.is_moved.load(Ordering::Relaxed)
    }
}

pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
