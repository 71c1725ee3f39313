//! The budget of what responses hold in memory for their clients, and the share of each client
//! (`docs/decisions/response-bodies.md`).
//!
//! In gateway mode one user, or one address whose user is not known, may hold at most half, so that
//! a client that does not read leaves room for the others. In sidecar mode all clients share one
//! account.
//!
//! Lock: that of the table of clients, held for a look-up only.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::codec::held_bytes::{HeldBytes, WeakHeldBytes};
use crate::config::Mode;
use crate::server::connection::client_id::ClientId;
use crate::server::http::refusal;
use crate::server::request::rejection::{Rejection, RejectionCause};

#[derive(Debug)]
pub(crate) struct ResponseBudget {
    total: HeldBytes,
    /// `None` in sidecar mode.
    clients: Option<Mutex<Clients>>,
}

#[derive(Debug, Default)]
struct Clients {
    accounts: HashMap<ClientId, WeakHeldBytes>,
    /// The size of the table at which accounts that are gone are removed.
    prune_at: usize,
}

impl ResponseBudget {
    /// Creates the budget. `process` counts what all clients hold.
    pub(crate) fn new(process: HeldBytes, mode: Mode) -> Self {
        let clients = match mode {
            Mode::Sidecar => None,
            Mode::Gateway => Some(Mutex::default()),
        };
        Self { total: process, clients }
    }

    pub(crate) fn account(&self, client: ClientId) -> HeldBytes {
        let Some(clients) = &self.clients else { return self.total.clone() };
        let mut clients = clients.lock();
        if let Some(account) = clients.accounts.get(&client).and_then(WeakHeldBytes::upgrade) {
            return account;
        }
        let Clients { accounts, prune_at } = &mut *clients;
        if accounts.len() >= *prune_at {
            accounts.retain(|_, account| !account.is_gone());
            *prune_at = PRUNE_AT_MIN.max(2 * accounts.len());
        }
        let account = self.total.part(self.total.bytes_max() / 2);
        accounts.insert(client, account.downgrade());
        account
    }
}

/// Returns the refusal of a request while too much is held. kube-apiserver answers 429 when it has
/// too many requests, and clients repeat the request after a pause.
pub(crate) fn too_much_held() -> Rejection {
    let message =
        "weir: too many bytes of responses wait for their clients to read them; try again later";
    Rejection::new(refusal::too_many_requests(message), RejectionCause::ResponseMemory)
}

/// The table is not pruned while it is small.
const PRUNE_AT_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::auth::user::User;

    const SOCKETS: ClientId = ClientId::Address(None);

    fn address(last: u8) -> ClientId {
        ClientId::from_address(Some(IpAddr::from([192, 0, 2, last])))
    }

    #[test]
    fn users_behind_one_address_do_not_share_its_half() {
        let budget = ResponseBudget::new(HeldBytes::new(100), Mode::Gateway);
        let user = |name: &str| {
            let user = User::new(name.to_owned(), String::new(), Vec::new(), [].into());
            ClientId::from_user_or_address(Some(&user), None)
        };
        let _hostile = budget.account(user("hostile")).claim(50);
        assert!(budget.account(user("hostile")).is_full());
        assert!(!budget.account(user("other")).is_full() && !budget.account(SOCKETS).is_full());
    }

    #[test]
    fn one_address_holds_at_most_half() {
        let process = HeldBytes::new(100);
        let budget = ResponseBudget::new(process.clone(), Mode::Gateway);
        let greedy = budget.account(address(1)).claim(50);
        assert!(budget.account(address(1)).is_full());
        assert!(!budget.account(address(2)).is_full() && !budget.account(SOCKETS).is_full());
        let other = budget.account(address(2)).claim(50);
        assert!(budget.account(SOCKETS).is_full(), "all of it is held");
        drop((greedy, other));
        assert!(!budget.account(address(1)).is_full());
        assert_eq!(process.bytes(), 0);
    }

    #[test]
    fn the_clients_of_a_sidecar_are_one() {
        let process = HeldBytes::new(100);
        let budget = ResponseBudget::new(process.clone(), Mode::Sidecar);
        let _held = budget.account(address(1)).claim(50);
        assert!(!budget.account(address(1)).is_full());
        assert_eq!(process.bytes(), 50);
    }

    #[test]
    fn addresses_that_hold_nothing_are_forgotten() {
        let budget = ResponseBudget::new(HeldBytes::new(100), Mode::Gateway);
        let held = budget.account(address(0)).claim(1);
        for last in 0..=255 {
            budget.account(address(last));
        }
        let clients = budget.clients.as_ref().unwrap().lock();
        assert!(clients.accounts.len() <= PRUNE_AT_MIN, "{}", clients.accounts.len());
        drop(clients);
        assert_eq!(budget.account(address(0)).bytes(), 1);
        drop(held);
    }
}
