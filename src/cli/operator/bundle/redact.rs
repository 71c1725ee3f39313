//! Replaces what names people and addresses by words, the same word for the same name.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

/// The words that stand for names, in one bundle.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    words: BTreeMap<String, String>,
}

impl Redactor {
    /// Replaces the names in a document.
    pub(super) fn redact(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    if NAMING_FIELDS.contains(&name.as_str()) {
                        self.replace(field);
                    } else {
                        self.redact(field);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact(item)),
            _ => {}
        }
    }

    /// Replaces the names in lines of the log, in their texts also: those that a document before
    /// had, and addresses. A line that is no JSON object is replaced as a text.
    pub(super) fn redact_lines(&mut self, lines: &str) -> String {
        let mut all = String::with_capacity(lines.len());
        for line in lines.lines() {
            match serde_json::from_str::<Value>(line) {
                Ok(mut line) => {
                    self.redact(&mut line);
                    self.redact_texts(&mut line);
                    all.push_str(&line.to_string());
                }
                Err(_) => all.push_str(&self.redact_text(line)),
            }
            all.push('\n');
        }
        all
    }

    /// Replaces names within each text of a value.
    fn redact_texts(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redact_text(text),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.redact_texts(field)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_texts(item)),
            _ => {}
        }
    }

    /// Replaces known names and addresses within a text.
    fn redact_text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        // A name may be a part of a longer one, which comes first.
        let mut known: Vec<_> =
            self.words.iter().filter(|(name, _)| text.contains(*name)).collect();
        known.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, word) in known {
            text = replace_whole(&text, name, word);
        }
        for address in addresses(&text) {
            text = replace_whole(&text, &address, self.word(&address));
        }
        text
    }

    /// Returns the word that stands for a name.
    fn word(&mut self, name: &str) -> &str {
        let number = self.words.len() + 1;
        self.words.entry(name.to_owned()).or_insert_with(|| format!("name-{number}"))
    }

    /// Replaces each text of a value.
    fn replace(&mut self, value: &mut Value) {
        match value {
            Value::String(text) if !text.is_empty() => {
                *text = self.word(text).to_owned();
            }
            Value::Object(fields) => fields.values_mut().for_each(|field| self.replace(field)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item)),
            _ => {}
        }
    }
}

/// Replaces a name where it is no part of a longer word.
fn replace_whole(text: &str, name: &str, word: &str) -> String {
    let is_part = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(name) {
        all.push_str(before);
        let is_whole = !is_part(all.chars().next_back()) && !is_part(after.chars().next());
        all.push_str(if is_whole { word } else { name });
        rest = after;
    }
    all.push_str(rest);
    all
}

/// Returns the IP addresses in a text, but for those of every host.
fn addresses(text: &str) -> Vec<String> {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '.' || letter == ':';
    let parts = text.split(|letter| !is_letter(letter));
    let parsed = parts.filter_map(|part| {
        // It may have a port, or end a sentence.
        let part = part.trim_end_matches(['.', ':']);
        let host = part.rsplit_once(':').map(|(host, _)| host);
        [Some(part), host].into_iter().flatten().find_map(|part| {
            let address: IpAddr = part.parse().ok()?;
            (!address.is_loopback() && !address.is_unspecified()).then(|| part.to_owned())
        })
    });
    parsed.collect()
}

/// The fields that name users, or what stands for them: of costs, findings, connections and lines
/// of the log; and of the configuration, in rules and audit policies.
const NAMING_FIELDS: [&str; 9] = [
    "user",
    "client",
    "flow",
    "address",
    "peer",
    "users",
    "userGroups",
    "subjects",
    "allowedNames",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_become_the_same_words_everywhere() {
        let mut redactor = Redactor::default();
        let mut costs = json!({"windows": [{"users": [{"user": "jane", "share": 0.5}],
            "actions": [{"user": "jane", "resource": "pods"}, {"user": "joe"}, {"user": ""}]}]});
        redactor.redact(&mut costs);
        let window = &costs["windows"][0];
        assert_eq!(window["users"][0], json!({"user": "name-1", "share": 0.5}));
        assert_eq!(window["actions"][0], json!({"user": "name-1", "resource": "pods"}));
        assert_eq!(window["actions"][1]["user"], "name-2");
        assert_eq!(window["actions"][2]["user"], "");
        let mut rules = json!({"rules": [{"match": [{"subjects": [{"user": {"name": "jane"}}]}]}],
            "userAgent": "kubectl/v1.36"});
        redactor.redact(&mut rules);
        assert_eq!(rules["rules"][0]["match"][0]["subjects"][0]["user"]["name"], "name-1");
        assert_eq!(rules["userAgent"], "kubectl/v1.36");
    }

    #[test]
    fn lines_of_the_log_name_nobody() {
        let mut redactor = Redactor::default();
        redactor.redact(&mut json!({"user": "jane"}));
        redactor.redact(&mut json!({"user": "jane@example.com"}));
        let lines = [
            json!({"level": "WARN", "peer": "10.1.2.3:4567", "message": "refused a connection"}),
            json!({"message": "jane may not, jane@example.com may; janet is unknown", "user": "joe"}),
            json!({"error": "no route to 10.9.8.7:443, [fd00::7]:443 or fd00::8.", "code": 7}),
            json!({"target": "weir::app", "message": "serves at 127.0.0.1:6440 and [::]:6441"}),
        ];
        let lines = lines.map(|line| line.to_string()).join("\n") + "\nno JSON by jane\n";
        let redacted = redactor.redact_lines(&lines);
        let lines: Vec<_> = redacted.lines().collect();
        assert_eq!(
            lines[0],
            r#"{"level":"WARN","peer":"name-3","message":"refused a connection"}"#
        );
        assert_eq!(
            lines[1],
            r#"{"message":"name-1 may not, name-2 may; janet is unknown","user":"name-4"}"#
        );
        assert_eq!(
            lines[2],
            r#"{"error":"no route to name-5:443, [name-6]:443 or name-7.","code":7}"#
        );
        assert_eq!(
            lines[3],
            r#"{"target":"weir::app","message":"serves at 127.0.0.1:6440 and [::]:6441"}"#
        );
        assert_eq!(lines[4], "no JSON by name-1");
    }
}
