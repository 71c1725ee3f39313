//! The fields that get into a bundle: those of the lists below, and no other.
//!
//! Numbers and booleans of these fields stay. A text stays where the list of its format has the
//! field, since that has words of Weir or of Kubernetes, and the text has their form; for settings
//! the schema of the configuration says where. Any other text becomes a word, which is a keyed
//! hash of it: the same text has the same word in all files of a bundle, and in all bundles of one
//! key. Without the key nobody can find out by guesses which text it was.
//!
//! A field of no list is left out with all that is in it, and the manifest has its name. Without
//! notice are left out: sentences, which are made of the other fields and of Weir's own words;
//! comments, and what is no line of its format.

use std::collections::BTreeSet;

use aws_lc_rs::hmac;
use serde_json::{Map, Value, json};

use crate::cli::operator::exposition::{labels_of, unescaped};
use crate::config::schema::json_schema;

/// Takes the allowed fields from files.
#[derive(Debug)]
pub(super) struct Allowed {
    /// The key of words; `None` if texts stay.
    key: Option<hmac::Key>,
    schema: Value,
    /// The files and their fields that are on no list.
    left_out: BTreeSet<String>,
}

impl Allowed {
    /// Creates one. A key turns texts into words.
    pub(super) fn new(key: Option<&[u8]>) -> Self {
        let key = key.map(|key| hmac::Key::new(hmac::HMAC_SHA256, key));
        Self { key, schema: json_schema(), left_out: BTreeSet::new() }
    }

    /// Returns the allowed content of a file.
    pub(super) fn take(&mut self, file: &str, content: &str) -> String {
        match file.rsplit_once('.') {
            Some((_, "json")) => {
                let document = serde_json::from_str(content).unwrap_or(Value::Null);
                format!("{:#}\n", self.value(file, "", document))
            }
            Some((_, "jsonl")) => {
                let documents = content.lines().filter_map(|line| serde_json::from_str(line).ok());
                documents.map(|line| format!("{}\n", self.value(file, "", line))).collect()
            }
            _ => content.lines().filter_map(|line| self.line(file, line)).collect(),
        }
    }

    /// Returns the names of what was left out, as JSON.
    pub(super) fn manifest(&self) -> String {
        format!("{:#}\n", json!({ "leftOut": self.left_out }))
    }

    fn value(&mut self, file: &str, field: &str, value: Value) -> Value {
        match value {
            Value::String(text) => self.text(file, field, &text).into(),
            Value::Array(items) => {
                items.into_iter().map(|item| self.value(file, field, item)).collect()
            }
            Value::Object(fields) => {
                let fields = fields.into_iter();
                fields.filter_map(|(name, value)| self.field(file, field, name, value)).collect()
            }
            number => number,
        }
    }

    /// Returns the field of an object, which is the value of the field `above`.
    fn field(
        &mut self,
        file: &str,
        above: &str,
        name: String,
        value: Value,
    ) -> Option<(String, Value)> {
        if has(SETTINGS, above)
            && let Some(schema) = self.schema_of(&name)
        {
            let value = self.setting(file, &name, &schema, value);
            return Some((name, value));
        }
        if has(SENTENCES, &name) && self.key.is_some() {
            return None;
        }
        let value = match has(MAPS, above) && is_plain(&name) {
            // Its text is one of the field above.
            true if value.is_string() => self.value(file, above, value),
            true => self.value(file, &name, value),
            false => self.is_allowed(file, &name).then(|| self.value(file, &name, value))?,
        };
        Some((name, value))
    }

    /// Returns the schema of a setting, by its path.
    fn schema_of(&self, path: &str) -> Option<Value> {
        let mut names = path.split('.');
        names.try_fold(&self.schema, |schema, name| schema.get("properties")?.get(name)).cloned()
    }

    /// Returns the value of a setting.
    fn setting(&mut self, file: &str, field: &str, schema: &Value, value: Value) -> Value {
        match value {
            Value::String(text) => {
                let words = schema.get("enum").and_then(Value::as_array);
                let is_closed = words.is_some_and(|words| words.contains(&text.as_str().into()));
                match is_closed || (schema.get("pattern").is_some() && is_plain(&text)) {
                    true => text.into(),
                    false => self.text(file, field, &text).into(),
                }
            }
            Value::Array(items) => {
                let schema = schema.get("items").unwrap_or(&Value::Null);
                items.into_iter().map(|item| self.setting(file, field, schema, item)).collect()
            }
            Value::Object(fields) => {
                let mut allowed = Map::new();
                for (name, value) in fields {
                    match schema.get("properties").and_then(|fields| fields.get(&name)) {
                        Some(schema) => {
                            let value = self.setting(file, &name, schema, value);
                            allowed.insert(name, value);
                        }
                        None => self.leave_out(file, &name),
                    }
                }
                allowed.into()
            }
            number => number,
        }
    }

    /// Returns a line of a text: a sample of a metric, a health check, or a flag.
    fn line(&mut self, file: &str, line: &str) -> Option<String> {
        if line.starts_with('#') {
            return None;
        }
        if let Some(check) = line.strip_prefix("[+]").or_else(|| line.strip_prefix("[-]")) {
            let (name, result) = check.split_once(' ')?;
            let result = result.split([' ', ':']).next().filter(|result| has(RESULTS, result))?;
            return self.is_allowed(file, name).then(|| format!("{name} {result}\n"));
        }
        let sample = line.rsplit_once(' ').filter(|(_, value)| value.parse::<f64>().is_ok());
        if let Some((series, value)) = sample {
            let name = series.split('{').next().unwrap_or_default();
            if !METRICS.iter().any(|prefix| name.starts_with(prefix)) || !is_plain(name) {
                self.leave_out(file, name);
                return None;
            }
            let labels: Vec<_> = labels_of(series)
                .filter_map(|(label, value)| self.label(file, label, value))
                .collect();
            return Some(format!("{name}{{{}}} {value}\n", labels.join(",")));
        }
        let (name, value) = line.split_once('=')?;
        self.is_allowed(file, name).then(|| format!("{name}={}\n", self.text(file, name, value)))
    }

    fn label(&mut self, file: &str, label: &str, value: &str) -> Option<String> {
        let text = self.text(file, label, &unescaped(value));
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        self.is_allowed(file, label).then(|| format!("{label}=\"{text}\""))
    }

    /// Returns the text of a field, or the word for it.
    fn text(&self, file: &str, field: &str, text: &str) -> String {
        let Some(key) = &self.key else { return text.to_owned() };
        if has(FAMILIAR, text) || text.is_empty() || (has(kept(file), field) && is_plain(text)) {
            return text.to_owned();
        }
        // A name and its beginning that the costs of clients show have one word.
        let name = text.strip_suffix('…').unwrap_or(text);
        let name = name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or(name);
        let tag = hmac::sign(key, name.as_bytes());
        tag.as_ref()
            .iter()
            .take(4)
            .fold("word-".to_owned(), |word, byte| format!("{word}{byte:02x}"))
    }

    /// Whether a field is on a list. If not, the manifest names it.
    fn is_allowed(&mut self, file: &str, name: &str) -> bool {
        let is_allowed = has(kept(file), name)
            || [REPLACED, MAPS, SETTINGS, SENTENCES].iter().any(|list| has(list, name));
        if !is_allowed {
            self.leave_out(file, name);
        }
        is_allowed
    }

    fn leave_out(&mut self, file: &str, name: &str) {
        let name = if is_plain(name) { name } else { "(a name that no field of Weir has)" };
        self.left_out.insert(format!("{file}: {name}"));
    }
}

fn has(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|listed| listed == name)
}

/// Returns the fields of a file whose texts stay.
fn kept(file: &str) -> &'static str {
    match file.rsplit_once('.') {
        Some((_, "json")) => FIELDS,
        Some((_, "jsonl")) => LINE_FIELDS,
        _ => LABELS,
    }
}

/// Whether a text has the form of a word of Weir or of Kubernetes, a time or a figure. Longer texts
/// may be tokens.
fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" -_.:/(),%+*".contains(&byte);
    text.len() <= PLAIN_BYTES_MAX && text.bytes().all(is_plain)
}

/// Fields of the pages with words of Weir or of Kubernetes.
const FIELDS: &str = "
    apiVersion cacheStatus case cpuShare exclude expires filter firstTime form group hash include
    kind level listener outcome read reason representation resource rule setting since
    startTime state stateSince time unit use verb version warm weight wrong";

/// Fields of the log with words of Weir or of Kubernetes. A reason may be a sentence there.
const LINE_FIELDS: &str = "
    cache_status code duration filename gvr kind level line_number method representation resource
    resource_version state target timestamp upstream_version verb version wait_ms";

/// Labels with words of Weir or of Kubernetes.
const LABELS: &str = "
    arch budget by ca cache_status cause check code credential decision effect enforced group hash
    identity index kind le limit listener of os outcome permission place profile protocol purpose
    reason representation resource result rule scope source stage start state status step
    traffic_class type use verb version weight";

/// Fields, labels, flags and checks with numbers, with other fields, or with texts that become
/// words.
const REPLACED: &str = "
    accountedBytes actions address addresses admin-listen agent ageSeconds all allowed answer
    applied at attempts audit audit_id before behind body budgetShare bytes bytesPerSecond cache
    caches cause certificate certificates client code coefficients collection collector
    compared compressedLists config configured conflict connection connections context cores count
    countsClients cpu cpuCores delay delaySeconds descriptors differences different discovery
    documents equal equalEvents err error errors errorsPerSecond events eventsPerSecond failure
    field file fileBytes first flow flow_schema flows flowSchema forwarded forwardedPerSecond from
    held historyBytes historyEvents historySeconds hits hitShare hitsPerSecond informer instance
    is_enforced is_lagging isEstimate isHTTP2 isUsable items key keys kinds KUBECONFIG kubeconfig
    lagSeconds lastCheck lastDifference lastFailure lateness left_out limit limitBytes listen
    listeners log-filter log-format logLines lost max medianSeconds memory message
    missing_permissions mode most name namespace needs_restart NO_PROXY number object objects oldest
    open openRequests overBudget owner parts path peer pendingFields permissions perSecond
    perSecondOfMinute ping place priority_level product progressAgeSeconds quarantined ready refused
    refusedPerSecond rejected relists relistsPerHour request requests requestsPerSecond
    residentBytes resource_bytes_max responses saved savedBytes savedCPUSeconds savedRequests
    seconds secondsPerEvent secondsPerGet secondsPerMegabyte seen server servers share
    shareErrorMax shareOfRequests shutdown slowestCache span span_id spans spread stages
    stall_timeout started startup subject suppressed then through timesMet to tokens total
    total_bytes_max totals trace_id unaccountedBytes upstream upstreamBytesPerSecond upstreamCores
    upstreamInconsistent upstreamRequests
    upstreamRequestsPerSecond upstreamSeats uptimeSeconds used usedBytes usedRatio user userAgent
    userAgents users verdict warm-caches watchBytesPerSecond watchers watchersBehind watches
    watchEvents WEIR_LOG what windows write-kubeconfig";

/// Fields whose own fields are named by words of Weir: verbs, reasons, spans of time, settings.
const MAPS: &str = "notComparable notHeld rates verbs";

/// Fields whose own fields are settings.
const SETTINGS: &str = "configuration pending";

/// Fields with sentences, and with what documents say.
const SENTENCES: &str = "change cost deed evidence fix fixes link meaning missing text title";

/// The results of health checks.
const RESULTS: &str = "ok failed";

/// The beginnings of the names of metrics.
const METRICS: [&str; 3] = ["weir_", "process_", "kubernetes_healthcheck"];

/// Texts that stay wherever they are, since every cluster has them.
const FAMILIAR: &str = "
    * - none stdout other localhost default kube-system kube-public kube-node-lease kubernetes
    system:anonymous system:unauthenticated system:authenticated system:masters system:nodes
    system:serviceaccounts system:apiserver system:kube-controller-manager system:kube-scheduler
    system:kube-proxy exempt probes system-leader-election endpoint-controller
    workload-leader-election system-node-high system-nodes kube-controller-manager kube-scheduler
    kube-system-service-accounts service-accounts global-default catch-all leader-election
    node-high system workload-high workload-low discovery ping shutdown startup upstream
    warm-caches";

const PLAIN_BYTES_MAX: usize = 64;
/// The costs of clients cut names at 120 bytes, and end them with an ellipsis.
const NAME_BYTES_MAX: usize = 117;

#[cfg(test)]
mod tests;
