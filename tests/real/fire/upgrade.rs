//! An upgrade: three API servers go from one version to the next, one after another, under 200
//! informers, clients that page, and writers.
//!
//! Beside what holds under fire, informers through Weir begin again no more often than informers
//! at the API servers themselves.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::informer::Informed;
use super::objects::Scope;
use super::world::World;
use super::{Fire, Form, SHORT_PACE, start_informers};
use crate::control_plane::{ApiServer, assets, upgraded_assets, version_of};

pub(crate) fn behind_a_balancer() {
    upgrade(Form::Balancer);
}

pub(crate) fn in_a_list() {
    upgrade(Form::List);
}

fn upgrade(form: Form) {
    let next = upgraded_assets().unwrap();
    let versions = [assets().unwrap(), next.clone()].map(|dir| version_of(&dir).unwrap());
    let mut fire = Fire::start(3, form, SHORT_PACE, INFORMERS);
    let direct = fire.start_direct_informers();
    fire.calm();
    for server in 0..fire.cluster.servers.len() {
        let name = format!("the upgrade of API server {server}");
        fire.fault(&name, |fire| fire.upgrade(server, &next));
    }
    fire.calm();
    let again = [&fire.informers, &direct].map(begun_again);
    let through = fire.informers.len();
    let [from, to] = versions;
    eprintln!(
        "{from} to {to}, {form:?}: {} of {} informers' states through Weir are second ones, \
         directly {} of {}",
        again[0],
        through + again[0],
        again[1],
        direct.len() + again[1]
    );
    fire.finish();
    assert!(again[0] * direct.len() <= again[1] * through, "informers began again: {again:?}");
}

/// Returns how often informers began again with a whole state.
fn begun_again(informers: &Informers) -> usize {
    informers.iter().map(|(_, informed)| informed.lock().runs.len().saturating_sub(1)).sum()
}

impl Fire {
    /// Ends an API server, and starts it with the binary of another version.
    pub(super) fn upgrade(&mut self, server: usize, assets: &Path) {
        let stop: fn(&mut ApiServer) = ApiServer::stop;
        self.cluster.servers[server].set_version(assets);
        self.restart(server, stop, std::time::Duration::ZERO);
    }

    /// Starts informers that do not use Weir. Their events are not judged.
    fn start_direct_informers(&mut self) -> Informers {
        let (direct, reference) = (self.world.direct.clone(), Arc::clone(&self.world.reference));
        let world = Arc::new(World::new(direct.clone(), direct, reference));
        world.set_refusals(true);
        self.runtime.block_on(start_informers(&world, 1, &mut self.tasks))
    }
}

type Informers = Vec<(Scope, Arc<Mutex<Informed>>)>;

/// Of each collection with a list first, and as many with a watch first: 216 in all.
const INFORMERS: usize = 12;
