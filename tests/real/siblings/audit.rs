//! A control plane that logs each list and watch of the resources here. Its log distinguishes a
//! whole list from a page that only compares; the API server's metrics count both as `LIST`.

use std::ops::Deref;
use std::path::PathBuf;

use serde::Deserialize;
use tempfile::TempDir;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::support::sum_metric;

pub(super) struct AuditedPlane {
    plane: ControlPlane,
    dir: TempDir,
}

/// Requests of one resource that reached the API server, but those that the test itself sent, which
/// have no `User-Agent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// Whole collections: lists, first pages of lists, and watches that send the whole state.
    pub(super) lists: usize,
    /// Lists at one resourceVersion, and those of one object: what compares and probes.
    pub(super) pages: usize,
    pub(super) watches: usize,
    /// Watches whose selector matches nothing: they end at once, and show how far the API server
    /// is.
    pub(super) short_watches: usize,
}

/// The counts of the API server's own metrics for a resource, for any purpose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metered {
    pub(super) lists: f64,
    /// Those that have ended, and those that are open.
    pub(super) watches: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Event {
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user_agent: String,
    stage: String,
    object_ref: ObjectReference,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectReference {
    resource: String,
}

impl AuditedPlane {
    pub(super) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let policy = dir.path().join("policy.yaml");
        std::fs::write(&policy, POLICY).expect("the policy is written");
        let policy = format!("--audit-policy-file={}", policy.display());
        let log = format!("--audit-log-path={}", dir.path().join(LOG).display());
        let plane = ControlPlane::start_with(&[&policy, &log]);
        Self { plane, dir }
    }

    /// Returns the section of the configuration that names these siblings, whose certificates are
    /// of this plane's CA.
    pub(super) fn siblings(&self, urls: &[String]) -> String {
        let ca = self.credentials().join("ca.crt");
        format!("{{addresses: [{}], caFile: {}}}", urls.join(", "), ca.display())
    }

    /// Returns the directory with the CA and a certificate for 127.0.0.1.
    pub(super) fn credentials(&self) -> PathBuf {
        self.plane.kubeconfig(ADMIN).parent().expect("it is in a directory").to_owned()
    }

    /// Returns the requests of a resource that are logged by now.
    pub(super) fn requests(&self, resource: &str) -> Requests {
        let log = std::fs::read_to_string(self.dir.path().join(LOG)).expect("the audit log");
        let mut requests = Requests::default();
        let events = log.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok());
        for event in events.filter(|it| it.object_ref.resource == resource) {
            requests.add(&event);
        }
        requests
    }

    /// Returns the counts of the API server's metrics for a resource of the whole cluster.
    pub(super) fn metered(&self, resource: &str) -> Metered {
        let metrics = self.plane.get("/metrics").expect("metrics");
        let resource = format!("resource=\"{resource}\"");
        let sum = |name: &str, verb: &str| {
            sum_metric(&metrics, name, &[&resource, verb, r#"scope="cluster""#])
        };
        let watch = r#"verb="WATCH""#;
        Metered {
            lists: sum("apiserver_request_total", r#"verb="LIST""#),
            watches: sum("apiserver_request_total", watch)
                + sum("apiserver_longrunning_requests", watch),
        }
    }
}

impl Deref for AuditedPlane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        &self.plane
    }
}

impl Requests {
    fn add(&mut self, event: &Event) {
        if event.user_agent.is_empty() {
            return;
        }
        let has = |text: &str| event.request_uri.contains(text);
        match (event.verb.as_str(), event.stage.as_str()) {
            ("list", "ResponseComplete") => {
                let compares = has("resourceVersionMatch=Exact") || has("continue=");
                let probes = has("limit=1&") || event.request_uri.ends_with("limit=1");
                *(if compares || probes { &mut self.pages } else { &mut self.lists }) += 1;
            }
            ("watch", "ResponseStarted") if has("labelSelector") => self.short_watches += 1,
            ("watch", "ResponseStarted") if has("sendInitialEvents=true") => {
                self.lists += 1;
                self.watches += 1;
            }
            ("watch", "ResponseStarted") => self.watches += 1,
            _ => {}
        }
    }

    /// Returns the requests since an earlier time.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            lists: self.lists - earlier.lists,
            pages: self.pages - earlier.pages,
            watches: self.watches - earlier.watches,
            short_watches: self.short_watches - earlier.short_watches,
        }
    }
}

const LOG: &str = "audit.log";

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [list, watch]
  resources:
  - {group: "", resources: [configmaps, secrets]}
  - {group: example.com, resources: [widgets]}
- level: None
"#;
