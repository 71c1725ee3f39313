//! Log lines as Kubernetes' components write them with `--logging-format=json`
//! (`component-base/logs/json/json.go`), so that a control plane's pipeline takes Weir's.
//!
//! A line has `ts` in milliseconds, `caller`, `logger` (the module), `msg`, `v` unless it is an
//! error, and the cause as `err`. The fields of the event and of the spans around it follow beside
//! these; those of an event hide those of its spans.

use std::fmt;
use std::time::SystemTime;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes an event as a line.
pub(super) struct KubernetesFormat;

impl<S, N> FormatEvent<S, N> for KubernetesFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line::default();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>();
            let fields = fields.and_then(|fields| serde_json::from_str(&fields.fields).ok());
            if let Some(Value::Object(fields)) = fields {
                line.0.extend(fields);
            }
        }
        event.record(&mut line);
        let metadata = event.metadata();
        let place = (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
        let [target, file, number] =
            ["log.target", "log.file", "log.line"].map(|name| line.0.remove(name));
        line.0.remove("log.module_path");
        // A line of the crate `log` has its place in fields.
        let caller = match (&file, &number) {
            (Some(Value::String(file)), Some(number)) => caller((
                file,
                number.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or_default(),
            )),
            _ => caller(place),
        };
        let logger = target.unwrap_or_else(|| metadata.target().into());
        let fields = [
            ("ts", milliseconds(SystemTime::now()).into()),
            ("caller", caller.into()),
            ("logger", logger),
        ];
        line.0.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        if let Some(verbosity) = verbosity(*metadata.level()) {
            line.0.insert("v".to_owned(), verbosity.into());
        }
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

/// The fields of a line.
#[derive(Default)]
struct Line(Map<String, Value>);

impl Line {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        let name = match field.name() {
            "message" => "msg",
            "error" => "err",
            name => name,
        };
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

fn milliseconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// Returns the file with its directory, and the line, as Go's components do.
fn caller((file, line): (&str, u32)) -> String {
    let directory = file.rfind('/').and_then(|slash| file.get(..slash)?.rfind('/'));
    let short = directory.and_then(|slash| file.get(slash + 1..)).unwrap_or(file);
    format!("{short}:{line}")
}

/// Returns klog's verbosity of a level. Warnings have none of their own, and errors have none.
fn verbosity(level: Level) -> Option<u32> {
    match level {
        Level::ERROR => None,
        Level::WARN | Level::INFO => Some(0),
        Level::DEBUG => Some(4),
        Level::TRACE => Some(6),
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::fmt::format::JsonFields;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::telemetry::recent_lines::RecentLines;

    #[test]
    fn lines_have_the_fields_of_kubernetes_components() {
        let lines = RecentLines::default();
        let layer = tracing_subscriber::fmt::layer().with_writer(lines.clone());
        let layer = layer.fmt_fields(JsonFields::new()).event_format(KubernetesFormat);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("reflector", resource = "v1/pods", namespace = "a");
            let _in = span.entered();
            tracing::info!(count = 3, namespace = "b", "list\ned");
            tracing::error!(error = %fmt::Error, "failed");
            tracing::debug!(left_out = None::<u64>, "more");
        });
        let text = lines.text();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [info, error, debug] = lines.as_slice() else { panic!("{text}") };
        assert!(info["ts"].as_f64().is_some_and(|ts| ts > 1.7e12), "{info}");
        assert_eq!(
            (&info["msg"], &info["v"], &info["count"]),
            (&"list\ned".into(), &0.into(), &3.into())
        );
        assert_eq!((&info["resource"], &info["namespace"]), (&"v1/pods".into(), &"b".into()));
        assert_eq!(info["logger"], "weir::telemetry::kubernetes_format::tests");
        let caller = info["caller"].as_str().unwrap();
        assert!(caller.starts_with("telemetry/kubernetes_format.rs:"), "{caller}");
        assert_eq!((&error["msg"], error.get("v")), (&"failed".into(), None));
        assert_eq!(error["err"], fmt::Error.to_string());
        assert_eq!((&debug["v"], debug.get("left_out")), (&4.into(), None));
    }

    #[test]
    fn a_caller_is_a_file_in_its_directory() {
        assert_eq!(caller(("src/cache/registry/inner.rs", 7)), "registry/inner.rs:7");
        assert_eq!(caller(("main.rs", 7)), "main.rs:7");
        assert_eq!(caller(("src/main.rs", 7)), "src/main.rs:7");
    }
}
