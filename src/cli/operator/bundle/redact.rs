//! Replaces what names people and addresses by words, the same word for the same name.

use std::collections::BTreeMap;

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

    /// Replaces each text of a value.
    fn replace(&mut self, value: &mut Value) {
        match value {
            Value::String(text) if !text.is_empty() => {
                let number = self.words.len() + 1;
                let word = self.words.entry(text.clone());
                *text = word.or_insert_with(|| format!("name-{number}")).clone();
            }
            Value::Object(fields) => fields.values_mut().for_each(|field| self.replace(field)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item)),
            _ => {}
        }
    }
}

/// The fields that name users, or what stands for them: of costs, findings and connections; and of
/// the configuration, in rules and audit policies.
const NAMING_FIELDS: [&str; 8] =
    ["user", "client", "flow", "address", "users", "userGroups", "subjects", "allowedNames"];

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
}
