//! Operators' rules by which clients get lists and watches without `metadata.managedFields`
//! (`docs/decisions/managed-fields.md`).
//!
//! Invariant: once a client of a rule has changed an object of a resource, the rule does not apply
//! to its reads of that resource any more, until Weir starts again. A writer may depend on the
//! managers of fields. When too many clients write, the rules apply to nobody.
//!
//! The lock of the writers is held for a look-up alone.

use std::collections::HashSet;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};
use parking_lot::RwLock;

use crate::api::request_info::{ResourceRequest, Verb};
use crate::api::resource::GroupVersionResource;
use crate::config::CacheConfig;
use crate::flow::rules::product;

#[derive(Debug, Default)]
pub(crate) struct DropRules {
    writers: RwLock<HashSet<Writer>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    product: Box<str>,
    group: Box<str>,
    resource: Box<str>,
}

impl Writer {
    /// Returns the key of a client that a rule matches.
    fn from_rules(
        config: &CacheConfig,
        agent: Option<&HeaderValue>,
        gvr: &GroupVersionResource,
    ) -> Option<Self> {
        let agent = agent?.to_str().ok()?;
        config.drops_managed_fields(agent).then(|| Self {
            product: product(agent).into(),
            group: (&*gvr.group).into(),
            resource: (&*gvr.resource).into(),
        })
    }
}

impl DropRules {
    /// Whether a rule applies to a read. None applies to a GET: what reads one object mostly
    /// changes it.
    pub(crate) fn apply(
        &self,
        config: &CacheConfig,
        verb: Verb,
        headers: &HeaderMap,
        request: &ResourceRequest,
    ) -> bool {
        if config.drop_managed_fields.is_empty() || !matches!(verb, Verb::List | Verb::Watch) {
            return false;
        }
        let agent = headers.get(USER_AGENT);
        let Some(reader) = Writer::from_rules(config, agent, &request.gvr) else { return false };
        let writers = self.writers.read();
        writers.len() < WRITERS_MAX && !writers.contains(&reader)
    }

    /// Notes a change of an object by `agent`. A creation or a deletion needs no managed fields.
    pub(crate) fn note_write(
        &self,
        config: &CacheConfig,
        verb: Verb,
        agent: Option<&HeaderValue>,
        request: &ResourceRequest,
    ) {
        if config.drop_managed_fields.is_empty() || !matches!(verb, Verb::Update | Verb::Patch) {
            return;
        }
        let Some(writer) = Writer::from_rules(config, agent, &request.gvr) else { return };
        if self.writers.read().contains(&writer) {
            return;
        }
        let mut writers = self.writers.write();
        if writers.len() < WRITERS_MAX && writers.insert(writer.clone()) {
            let Writer { product, group, resource } = writer;
            tracing::warn!(
                %product,
                %group,
                %resource,
                "a client of cache.dropManagedFields changes objects; it gets managed fields from now on"
            );
        }
    }
}

/// Operators name a few clients. Beyond this number a pattern matches what it should not.
const WRITERS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::request_info::RequestInfo;
    use crate::flow::rules::AgentPattern;
    use crate::testing::headers;

    fn rules() -> CacheConfig {
        let drop_managed_fields = vec![AgentPattern::parse("exporter/*").unwrap()];
        CacheConfig { drop_managed_fields, ..CacheConfig::default() }
    }

    fn request(path: &str) -> ResourceRequest {
        RequestInfo::parse(&http::Method::GET, path, "").resource.unwrap()
    }

    #[test]
    fn a_rule_is_about_lists_and_watches_of_its_clients() {
        let (state, rules) = (DropRules::default(), rules());
        let pods = request("/api/v1/pods");
        let exporter = headers(&[("user-agent", "exporter/v2 (linux)")]);
        let other = headers(&[("user-agent", "kubectl/v1.36.0")]);
        assert!(state.apply(&rules, Verb::List, &exporter, &pods));
        assert!(state.apply(&rules, Verb::Watch, &exporter, &pods));
        assert!(!state.apply(&rules, Verb::Get, &exporter, &pods));
        assert!(!state.apply(&rules, Verb::List, &other, &pods));
        assert!(!state.apply(&rules, Verb::List, &HeaderMap::new(), &pods));
        assert!(!state.apply(&CacheConfig::default(), Verb::List, &exporter, &pods));
    }

    #[test]
    fn a_rule_ends_for_a_client_that_changes_objects() {
        let (state, rules) = (DropRules::default(), rules());
        let pods = request("/api/v1/pods");
        let (one, two) =
            (headers(&[("user-agent", "exporter/1")]), headers(&[("user-agent", "exporter/2")]));
        let writer = one.get(USER_AGENT);
        state.note_write(&rules, Verb::Create, writer, &pods);
        state.note_write(&rules, Verb::Patch, writer, &request("/api/v1/nodes"));
        assert!(state.apply(&rules, Verb::List, &one, &pods));
        state.note_write(&rules, Verb::Patch, writer, &pods);
        assert!(!state.apply(&rules, Verb::List, &one, &pods));
        assert!(state.apply(&rules, Verb::List, &two, &pods));
    }

    #[test]
    fn too_many_writers_end_all_rules() {
        let (state, rules) = (DropRules::default(), rules());
        let pods = request("/api/v1/pods");
        for number in 0..=WRITERS_MAX {
            let agent = format!("exporter/{number}").parse().unwrap();
            state.note_write(&rules, Verb::Update, Some(&agent), &pods);
        }
        assert_eq!(state.writers.read().len(), WRITERS_MAX);
        let new = headers(&[("user-agent", "exporter/new")]);
        assert!(!state.apply(&rules, Verb::List, &new, &pods));
    }
}
