//! The faults, one after another. After each one all informers must reach etcd's objects.

use std::time::Duration;

use super::{Fire, Form, give_back_role, revoke_role};
use crate::control_plane::ApiServer;
use crate::support::eventually_blocking;

impl Fire {
    pub(super) fn all_faults(&mut self) {
        for server in 0..self.cluster.servers.len() {
            let name = format!("an upgrade of API server {server}");
            self.fault(&name, |fire| fire.restart(server, ApiServer::stop, Duration::ZERO));
        }
        for server in 0..self.cluster.servers.len() {
            let name = format!("a crash of API server {server}");
            self.fault(&name, |fire| fire.restart(server, ApiServer::kill, fire.pace.fault));
        }
        let last = self.cluster.servers.len() - 1;
        for server in [0, last] {
            self.fault(&format!("a pause of API server {server}"), |fire| {
                fire.cluster.servers[server].pause();
                std::thread::sleep(fire.pace.pause);
                fire.cluster.servers[server].resume();
            });
            self.fault(&format!("a lag of API server {server}"), |fire| {
                fire.cluster.set_delay(server, LAG);
                std::thread::sleep(fire.pace.fault);
                fire.cluster.set_delay(server, Duration::ZERO);
            });
        }
        self.fault("broken connections", |fire| fire.doors.iter().for_each(super::Relay::cut));
        self.fault("a revoked role", Self::revoke);
        self.fault("a crash of all API servers", |fire| {
            fire.cluster.kill_servers();
            std::thread::sleep(fire.pace.fault);
            fire.start_servers();
        });
        self.cluster.save();
        let saved = self.cluster.revision();
        self.calm();
        // More than API servers write while they start: otherwise the new history would pass what
        // Weir holds before any resourceVersion shows the restore.
        eventually_blocking("enough was written to be lost", || {
            self.cluster.revision() > saved + LOST_MIN
        });
        self.fault("a restore of etcd", Self::restore);
        self.fault("another cluster", Self::swap);
    }

    pub(super) fn fault(&mut self, name: &str, fault: impl FnOnce(&mut Self)) {
        let violations = self.world.report.violations().len();
        self.world.set_refusals(true);
        self.world.report.begin_fault(name);
        fault(self);
        self.world.report.end_fault();
        std::thread::sleep(self.pace.calm / 2);
        let converged = self.converge();
        self.world.set_refusals(false);
        std::thread::sleep(self.pace.calm / 2);
        let violations = self.world.report.violations().len() - violations;
        let ended = self.ended_by_410();
        eprintln!(
            "{name}: informers equal after {converged:.1?} without writes; {ended} runs ended by \
             410 until now; {violations} violations"
        );
    }

    /// Ends an API server, waits, and starts it again.
    pub(super) fn restart(&mut self, server: usize, end: fn(&mut ApiServer), down: Duration) {
        end(&mut self.cluster.servers[server]);
        self.world.report.change();
        std::thread::sleep(down);
        self.cluster.servers[server].start();
    }

    fn start_servers(&mut self) {
        self.cluster.servers.iter_mut().for_each(ApiServer::spawn);
        self.cluster.servers.iter().for_each(ApiServer::wait_until_ready);
    }

    fn revoke(&mut self) {
        let client = self.runtime.block_on(crate::churn::client(&self.world.direct));
        self.runtime.block_on(revoke_role(&client));
        // Watches that are open go on; new ones are refused.
        self.doors.iter().for_each(super::Relay::cut);
        std::thread::sleep(self.pace.fault);
        self.runtime.block_on(give_back_role(&client));
    }

    fn restore(&mut self) {
        self.world.set_quiet(true);
        self.wait_for_reference();
        self.cluster.kill_servers();
        let lost = self.cluster.revision();
        let revision = self.cluster.restore();
        assert!(revision < lost, "nothing is lost");
        let guard = self.runtime.enter();
        self.world.reference.rewind(self.cluster.etcd_port(), revision);
        drop(guard);
        self.start_servers();
        self.world.set_quiet(false);
        eprintln!("etcd went back from {lost} to {revision}");
    }

    /// Another cluster takes the place of the first one, at once.
    fn swap(&mut self) {
        let (other, base) = self.cluster.another(self.runtime.handle());
        self.world.set_quiet(true);
        self.wait_for_reference();
        self.world.report.change();
        let guard = self.runtime.enter();
        self.world.reference.begin(other.etcd_port(), base);
        drop(guard);
        for door in self.doors.iter().chain([&self.direct]) {
            door.set_targets(other.ports());
            door.cut();
        }
        self.cluster = other;
        self.world.set_quiet(false);
        let form = if self.form == Form::List { "addresses lead" } else { "balancer leads" };
        eprintln!("the {form} to another cluster");
    }

    /// Waits until every change in etcd is known.
    fn wait_for_reference(&self) {
        let revision = self.cluster.revision();
        while self.world.reference.reached() < revision {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ended_by_410(&self) -> usize {
        let ended =
            |informed: &super::Informed| informed.runs.iter().filter(|run| run.expired).count();
        self.informers.iter().map(|(_, informed)| ended(&informed.lock())).sum()
    }
}

/// The least number of revisions that a restore loses.
const LOST_MIN: u64 = 300;
/// How late everything from etcd reaches a slow API server.
const LAG: Duration = Duration::from_millis(1500);
