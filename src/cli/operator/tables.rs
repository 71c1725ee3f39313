//! Answers of the admin API as tables of text.

use std::str::FromStr;

use serde_json::Value;

use crate::cli::screen::printable;

/// A column by which tables are ordered: its head in lower case, without a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SortColumn(String);

impl FromStr for SortColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let sort = Self(text.to_lowercase());
        let tables: [&[Column]; 5] = [&CACHES, &CLIENTS, &REASONS, &EVENTS, &LIMITS];
        let mut columns = tables.into_iter().flatten();
        if columns.any(|(head, _)| sort.is(head)) {
            return Ok(sort);
        }
        let mut heads: Vec<_> = tables.into_iter().flatten().map(|(head, _)| name(head)).collect();
        heads.sort_unstable();
        heads.dedup();
        Err(format!("there is no such column; there are {}", heads.join(", ")))
    }
}

impl SortColumn {
    fn is(&self, head: &str) -> bool {
        self.0 == name(head)
    }

    /// Orders rows, the largest first, if they have the column.
    fn order(&self, columns: &[Column], rows: &mut [&Value]) {
        let Some((_, fields)) = columns.iter().find(|(head, _)| self.is(head)) else { return };
        rows.sort_by(|one, other| match (value(one, fields), value(other, fields)) {
            (Some(one), Some(other)) => match (one.as_f64(), other.as_f64()) {
                (Some(one), Some(other)) => other.total_cmp(&one),
                _ => text(Some(one)).cmp(&text(Some(other))),
            },
            (one, other) => other.is_some().cmp(&one.is_some()),
        });
    }
}

fn name(head: &str) -> String {
    head.trim_end_matches(['%', ' ']).to_lowercase()
}

/// Returns an answer as text, with at most `limit` rows.
pub(super) fn render(
    kind: &str,
    answer: &Value,
    limit: usize,
    sort: Option<&SortColumn>,
) -> String {
    match kind {
        "overview" => overview(answer),
        "clients" => clients(answer, limit, sort),
        "caches" => list(answer, &CACHES, limit, sort),
        "reasons" => list(answer, &REASONS, limit, sort),
        "events" => list(answer, &EVENTS, limit, sort),
        _ => list(answer, &LIMITS, limit, sort),
    }
}

/// Returns at most `limit` findings as text: each with its cost and its fix.
pub(super) fn findings(answer: &Value, limit: usize) -> String {
    let findings = items(answer, "/items");
    if findings.is_empty() {
        return "Nothing to say about the clients.\n".to_owned();
    }
    let mut texts: Vec<_> = findings
        .iter()
        .take(limit)
        .map(|finding| {
            let field_text = |field| text(finding.get(field));
            format!(
                "{} [{}] {}\n  client   {}\n  resource {}\n  seen     {}\n  cost     {} (estimate)\n  fix      {}\n",
                field_text("weight").to_uppercase(),
                field_text("rule"),
                field_text("title"),
                field_text("client"),
                field_text("resource"),
                field_text("evidence"),
                field_text("cost"),
                field_text("fix"),
            )
        })
        .collect();
    if let Some(more) = findings.len().checked_sub(limit).filter(|more| *more > 0) {
        texts.push(format!("... and {more} more; see --limit\n"));
    }
    texts.join("\n")
}

/// Returns a list with at most `limit` items.
pub(super) fn cut(mut answer: Value, limit: usize) -> Value {
    if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
        items.truncate(limit);
    }
    answer
}

fn overview(answer: &Value) -> String {
    let field_text = |pointer: &str| text(answer.pointer(pointer));
    format!(
        "{}: {} {}\n{} requests/s, {} of them from cache, {} forwarded/s; {} watches; saved upstream: {} requests/s, {} cores (estimate)\n",
        field_text("/verdict/level"),
        field_text("/verdict/text"),
        field_text("/verdict/deed"),
        field_text("/rates/1m/requestsPerSecond"),
        percent(answer.pointer("/rates/1m/hitShare")),
        field_text("/rates/1m/forwardedPerSecond"),
        field_text("/watches/open"),
        field_text("/saved/requestsPerSecond"),
        field_text("/saved/cores"),
    )
}

fn clients(answer: &Value, limit: usize, sort: Option<&SortColumn>) -> String {
    let windows = items(answer, "/windows");
    let used = windows.iter().find(|window| !items(window, "/actions").is_empty());
    let Some(window) = used else {
        return "No clients: none came yet, or they are not counted (set flowControl.mode: observe in the configuration).\n".to_owned();
    };
    let rows = ordered(items(window, "/actions"), &CLIENTS, sort);
    table(&CLIENTS, rows.into_iter().take(limit))
}

fn list(answer: &Value, columns: &[Column], limit: usize, sort: Option<&SortColumn>) -> String {
    let rows = ordered(items(answer, "/items"), columns, sort);
    let more = rows.len().saturating_sub(limit);
    let mut text = table(columns, rows.into_iter().take(limit));
    if more > 0 {
        text.push_str(&format!("... and {more} more; see --limit\n"));
    }
    text
}

fn ordered<'a>(rows: &'a [Value], columns: &[Column], sort: Option<&SortColumn>) -> Vec<&'a Value> {
    let mut rows: Vec<_> = rows.iter().collect();
    if let Some(sort) = sort {
        sort.order(columns, &mut rows);
    }
    rows
}

/// Returns the first of the fields that an item has.
fn value<'a>(row: &'a Value, fields: &[&str]) -> Option<&'a Value> {
    fields.iter().find_map(|field| row.get(*field).filter(|value| !value.is_null()))
}

/// The head of a column, and the field of an item.
type Column = (&'static str, &'static [&'static str]);

fn table<'a>(columns: &[Column], rows: impl Iterator<Item = &'a Value>) -> String {
    let heads = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
    let mut lines: Vec<Vec<String>> = vec![heads];
    lines.extend(rows.map(|row| {
        let cell = |(head, fields): &Column| {
            let value = value(row, fields);
            if head.ends_with('%') { percent(value) } else { text(value) }
        };
        columns.iter().map(cell).collect()
    }));
    let width = |place: usize| {
        let cells = lines.iter().filter_map(|line| line.get(place));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let mut table = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let cells: Vec<_> = cells.collect();
        table.push_str(cells.join("  ").trim_end());
        table.push('\n');
    }
    table
}

fn items<'a>(answer: &'a Value, pointer: &str) -> &'a [Value] {
    answer.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns a value without quotes and control characters: clients choose their user agents.
fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => printable(text),
        Some(other) => printable(&other.to_string()),
    }
}

fn percent(value: Option<&Value>) -> String {
    let share = value.and_then(Value::as_f64);
    share.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

const CACHES: [Column; 9] = [
    ("RESOURCE", &["resource"]),
    ("GROUP", &["group"]),
    ("NAMESPACE", &["namespace"]),
    ("FORM", &["representation"]),
    ("STATE", &["state"]),
    ("OBJECTS", &["objects"]),
    ("BYTES", &["bytes"]),
    ("WATCHES", &["watchers"]),
    ("RELISTS", &["relists"]),
];
const CLIENTS: [Column; 7] = [
    // A user where users are known, else a user agent.
    ("USER/AGENT", &["user", "userAgent"]),
    ("VERB", &["verb"]),
    ("RESOURCE", &["resource"]),
    ("COST %", &["share"]),
    ("REQUESTS/S", &["requestsPerSecond"]),
    ("FORWARDED/S", &["forwardedPerSecond"]),
    ("BYTES/S", &["bytesPerSecond"]),
];
const REASONS: [Column; 5] = [
    ("REASON", &["reason"]),
    ("ORIGIN", &["cacheStatus"]),
    ("SHARE %", &["shareOfRequests"]),
    ("TOTAL", &["total"]),
    ("MEANING", &["meaning"]),
];
const EVENTS: [Column; 5] = [
    ("TIME", &["time"]),
    ("KIND", &["kind"]),
    ("TIMES", &["count"]),
    ("WHAT", &["subject"]),
    ("EVENT", &["text"]),
];
const LIMITS: [Column; 5] = [
    ("LIMIT", &["name"]),
    ("USED", &["used"]),
    ("MOST", &["limit"]),
    ("MET", &["timesMet"]),
    ("SETTING", &["setting"]),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_are_aligned_and_cut() {
        let item = |name: &str, used: u64| json!({"name": name, "used": used, "limit": null});
        let answer = json!({"items": [item("a", 5), item("long", 70), item("b", 1)]});
        let text = render("limits", &answer, 2, None);
        assert_eq!(
            text,
            "LIMIT  USED  MOST  MET  SETTING\na      5     -     -    -\nlong   70    -     -    -\n... and 1 more; see --limit\n"
        );
    }

    #[test]
    fn agents_cannot_control_the_terminal() {
        let action = json!({"userAgent": "x\u{1b}[2J", "verb": "list", "share": 0.5});
        let answer = json!({"windows": [{"actions": []}, {"actions": [action]}]});
        let text = render("clients", &answer, 9, None);
        assert!(text.contains("x\u{fffd}[2J") && text.contains("50.0 %"), "{text}");
        assert!(render("clients", &Value::Null, 9, None).starts_with("No clients"));
    }

    #[test]
    fn tables_are_ordered_by_a_column() {
        let item = |name: &str, used: Value| json!({"name": name, "used": used});
        let rows = [item("b", 5.into()), item("c", Value::Null), item("a", 70.into())];
        let answer = json!({ "items": rows });
        let names = |sort: &str| {
            let text = render("limits", &answer, 9, Some(&sort.parse().unwrap()));
            let rows = text.lines().skip(1);
            rows.map(|row| row.chars().next().unwrap()).collect::<String>()
        };
        assert_eq!(names("Used"), "abc");
        assert_eq!(names("limit"), "abc");
        assert_eq!(names("resource"), "bca", "it has no such column");
        assert!("cost".parse::<SortColumn>().is_ok(), "without its unit");
        let error = "price".parse::<SortColumn>().unwrap_err();
        assert!(error.contains("bytes, bytes/s, cost"), "{error}");
    }

    #[test]
    fn findings_have_their_fix() {
        assert_eq!(findings(&json!({"items": []}), 9), "Nothing to say about the clients.\n");
        let finding = json!({"weight": "warning", "rule": "no-gzip", "fix": "Python: x"});
        let text = findings(&json!({"items": [finding, finding]}), 1);
        assert!(text.starts_with("WARNING [no-gzip] -\n") && text.contains("fix      Python: x\n"));
        assert!(text.ends_with("\n\n... and 1 more; see --limit\n"), "{text}");
    }
}
