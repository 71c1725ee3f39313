//! Settings that are valid, and yet contradict one another or do not do what their names promise.
//!
//! Each can be right for somebody, so that they stop nothing: `weir check` prints them, and
//! `weir serve` logs them.

use crate::api::resource::GroupVersionResource;
use crate::config::flow_control::SEATS_PER_SERVER;
use crate::config::resolve::{Problem, Problems};
use crate::config::{Config, ConsistentLists, FilteredLists, FlowControlMode, Mode};
use crate::flow::rules::{Limits, Rule};

impl Config {
    /// Returns what an operator should look at. `memory_limit` is that of the process, in bytes.
    pub fn warnings(&self, memory_limit: Option<u64>) -> Option<Problems> {
        let mut warnings = Vec::new();
        let mut warn = |path: &str, message: String| {
            warnings.push(Problem { place: None, path: path.to_owned(), message });
        };
        self.warn_of_memory(memory_limit, &mut warn);
        self.warn_of_mode(&mut warn);
        self.warn_of_seats(&mut warn);
        self.warn_of_rules(&mut warn);
        self.warn_of_what_does_nothing(&mut warn);
        self.warn_of_tracing(&mut warn);
        (!warnings.is_empty()).then_some(Problems(warnings))
    }

    fn warn_of_memory(&self, memory_limit: Option<u64>, warn: &mut impl FnMut(&str, String)) {
        let budgets = self.budget_bytes();
        let Some(limit) = memory_limit.filter(|limit| budgets > *limit) else { return };
        warn(
            "cache.totalBytesMax",
            format!(
                "is more than the memory limit together with what compressed segments and unread responses may hold: {budgets} bytes of {limit}; set it lower, or leave it out"
            ),
        );
    }

    fn warn_of_mode(&self, warn: &mut impl FnMut(&str, String)) {
        let flow = &self.flow_control;
        if self.authentication.mode == Mode::Sidecar {
            return;
        }
        if flow.mode == FlowControlMode::Off && self.cache.consistent_lists == ConsistentLists::Auto
        {
            let text = "is auto while flowControl.mode is off: lists that the cache cannot prove fresh in time are forwarded, and nothing keeps one client's from taking the API server";
            warn("cache.consistentLists", text.to_owned());
        }
        if flow.mode == FlowControlMode::Off {
            return;
        }
        for resource in ["flowschemas", "prioritylevelconfigurations"] {
            let gvr = GroupVersionResource::new("flowcontrol.apiserver.k8s.io", "v1", resource);
            if !self.cache.admits(&gvr) {
                let field = if self.cache.exclude.iter().any(|rule| rule.matches(&gvr)) {
                    "cache.exclude"
                } else {
                    "cache.include"
                };
                warn(
                    field,
                    format!(
                        "keeps Weir from reading {resource}: requests are classified by the objects that kube-apiserver creates, not by the cluster's own"
                    ),
                );
            }
        }
    }

    fn warn_of_seats(&self, warn: &mut impl FnMut(&str, String)) {
        let flow = &self.flow_control;
        let enforces =
            flow.mode == FlowControlMode::Enforce && self.authentication.mode == Mode::Gateway;
        if enforces && flow.seats_assumed() < FEW_SEATS {
            let text = format!(
                "is low: with fewer than {FEW_SEATS} the smallest of kube-apiserver's priority levels have one seat or two (its default is {SEATS_PER_SERVER})"
            );
            warn("flowControl.seatsPerServer", text);
        }
    }

    fn warn_of_rules(&self, warn: &mut impl FnMut(&str, String)) {
        let flow = &self.flow_control;
        for (index, rule) in flow.compiled_rules().iter().enumerate() {
            let path = format!("flowControl.rules[{index}]");
            if rule.level.is_some() && flow.mode != FlowControlMode::Enforce {
                let text =
                    "does nothing: levels matter where requests wait (flowControl.mode: enforce)";
                warn(&format!("{path}.level"), text.to_owned());
            }
            if rule.denies && rule.enforces && is_about_all(rule) {
                let text = "refuses every request of every client: the rule has no match and no userAgents";
                warn(&format!("{path}.action"), text.to_owned());
            }
            if rule.denies && (rule.limits != Limits::default() || rule.level.is_some()) {
                let text = "refuses what matches, so that limits and level of the rule do nothing";
                warn(&format!("{path}.action"), text.to_owned());
            }
            if rule.limits.watches == Some(0) && rule.enforces && is_about_all(rule) {
                let text = "is 0: no client can open a watch, informers of Weir's clients included";
                warn(&format!("{path}.limits.watches"), text.to_owned());
            }
        }
    }

    fn warn_of_what_does_nothing(&self, warn: &mut impl FnMut(&str, String)) {
        if self.admin.socket.is_some() && self.admin.listen.is_none() {
            warn("admin.socket", "does nothing without admin.listen".to_owned());
        }
        let filters = self.authorization.filtered_lists != FilteredLists::Off;
        if filters && !self.authorization.rbac.enabled {
            let text = "does nothing without authorization.rbac.enabled".to_owned();
            warn("authorization.filteredLists", text);
        }
    }

    fn warn_of_tracing(&self, warn: &mut impl FnMut(&str, String)) {
        match &self.tracing.endpoint {
            None if self.tracing.sampling_rate_per_million > 0 => {
                let text = "does nothing without tracing.endpoint";
                warn("tracing.samplingRatePerMillion", text.to_owned());
            }
            Some(endpoint) if endpoint.port == OTLP_GRPC_PORT => {
                let text = format!(
                    "has the port of OTLP over gRPC; Weir sends OTLP over HTTP, for which collectors usually listen on port {OTLP_HTTP_PORT}"
                );
                warn("tracing.endpoint", text);
            }
            _ => {}
        }
    }
}

fn is_about_all(rule: &Rule) -> bool {
    rule.policies.is_none() && rule.agents.is_empty()
}

/// With fewer seats for all, the level `leader-election` (10 of 245 shares) has two, and
/// `catch-all` (5) one.
const FEW_SEATS: u64 = 60;
/// The ports that IANA has assigned to OTLP.
const OTLP_GRPC_PORT: u16 = 4317;
const OTLP_HTTP_PORT: u16 = 4318;
