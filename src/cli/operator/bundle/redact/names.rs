//! The names that the files of a bundle have: from fields of names, and from what has the form of
//! a name in any text: addresses, URLs, e-mail addresses, and the paths of the Kubernetes API.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::cli::operator::bundle::redact::common::is_of_every_cluster;

/// The kind of a name. A name of several kinds gets the word of the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameKind {
    User,
    Agent,
    Namespace,
    Object,
    Address,
    Path,
}

impl NameKind {
    /// The beginning of the words of this kind.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Namespace => "namespace",
            Self::Object => "name",
            Self::Address => "address",
            Self::Path => "path",
        }
    }
}

/// The names of a bundle.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, NameKind>);

impl Names {
    /// Returns the kind of a name.
    pub(super) fn get(&self, name: &str) -> Option<NameKind> {
        self.0.get(name).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, NameKind)> {
        self.0.iter().map(|(name, kind)| (name.as_str(), *kind))
    }

    /// Adds what the value of a field of names has.
    pub(super) fn add_value(&mut self, kind: NameKind, text: &str) {
        match kind {
            NameKind::Address => self.add_address(text),
            NameKind::Path => match text.split_once("unix:") {
                Some((_, path)) => self.add(kind, path.trim_start_matches("//")),
                None if text.starts_with("/api") => {}
                None => self.add(kind, text),
            },
            NameKind::Object => self.add_keys(text),
            NameKind::Agent => self.add(kind, text.trim_end_matches('*')),
            NameKind::User => {
                self.add(kind, text);
                let mut parts = text.split(':');
                match [parts.next(), parts.next(), parts.next(), parts.next()] {
                    [Some("system"), Some("serviceaccount"), Some(namespace), Some(name)] => {
                        self.add(NameKind::Namespace, namespace);
                        self.add(NameKind::Object, name);
                    }
                    [Some("system"), Some("serviceaccounts"), Some(namespace), None] => {
                        self.add(NameKind::Namespace, namespace);
                    }
                    [Some("system"), Some("node"), Some(name), None] => {
                        self.add(NameKind::Object, name);
                    }
                    _ => {}
                }
            }
            NameKind::Namespace => self.add(kind, text),
        }
    }

    /// Adds what has the form of a name in any text.
    pub(super) fn add_text(&mut self, text: &str) {
        self.add_ips(text);
        for (_, rest) in text.match_indices("://").filter_map(|(at, _)| text.split_at_checked(at)) {
            let host = rest.trim_start_matches("://");
            self.add_address(host.split(is_no_url).next().unwrap_or_default());
        }
        for word in
            text.split(|letter: char| !letter.is_alphanumeric() && !".@_+-".contains(letter))
        {
            let word = word.trim_end_matches('.');
            if word.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.len() > 1) {
                self.add(NameKind::User, word);
            }
        }
        for start in ["/api/", "/apis/"] {
            for (at, _) in text.match_indices(start) {
                let path = text.get(at..).unwrap_or_default();
                self.add_api_path(path.split(is_no_url).next().unwrap_or_default());
            }
        }
        for (selector, kind) in SELECTORS {
            for (at, _) in text.match_indices(selector) {
                let value = text.get(at + selector.len()..).unwrap_or_default();
                let signs = ["%3D%3D", "==", "%3D", "="];
                let value = signs.iter().find_map(|sign| value.strip_prefix(sign));
                let value = value.unwrap_or_default();
                self.add(kind, value.split(is_no_name).next().unwrap_or_default());
            }
        }
    }

    fn add(&mut self, kind: NameKind, name: &str) {
        let name = canonical(name.trim());
        // A placeholder that Weir itself writes is not a name.
        if name.is_empty() || is_of_every_cluster(name) || name == "(no user agent)" {
            return;
        }
        // An address is one wherever it stands, and those of every host stay.
        if name.parse::<IpAddr>().is_ok() {
            return self.add_ips(name);
        }
        let stored = self.0.entry(name.to_owned()).or_insert(kind);
        *stored = kind.min(*stored);
    }

    /// Adds the host of an address, of a URL or of a network. Those of every host stay.
    fn add_address(&mut self, text: &str) {
        let text = text.split_once("://").map_or(text, |(_, rest)| rest);
        if text.starts_with('/') {
            return self.add(NameKind::Path, text);
        }
        let text = text.split(['/', '?']).next().unwrap_or_default();
        let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
        if text.parse::<IpAddr>().is_ok() {
            return self.add_ips(text);
        }
        let host = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, _)) => host,
            None => text.split_once(':').map_or(text, |(host, _)| host),
        };
        match host.parse::<IpAddr>() {
            Ok(_) => self.add_ips(host),
            Err(_) => self.add(NameKind::Address, host),
        }
    }

    /// Adds the IP addresses in a text, but for those that every host has.
    fn add_ips(&mut self, text: &str) {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '.' || letter == ':';
        for part in text.split(|letter| !is_part(letter)) {
            // It may have a port, or end a sentence.
            let part = part.trim_end_matches(['.', ':']);
            let host = part.rsplit_once(':').map(|(host, _)| host);
            let address = [Some(part), host].into_iter().flatten().find_map(|part| {
                let address: IpAddr = part.parse().ok()?;
                (!address.is_loopback() && !address.is_unspecified()).then_some(part)
            });
            if let Some(address) = address {
                let kind = NameKind::Address;
                let stored = self.0.entry(address.to_owned()).or_insert(kind);
                *stored = kind.min(*stored);
            }
        }
    }

    /// Adds the namespaces and the names of objects, from `name`, from `namespace/name`, or from a
    /// list of such keys as Rust prints it, each with a comment after a colon.
    fn add_keys(&mut self, text: &str) {
        for part in text.split(['"', ',', '[', ']']) {
            let key = part.split(':').next().unwrap_or_default().trim();
            if key.contains(char::is_whitespace) {
                continue;
            }
            match key.split_once('/') {
                Some((namespace, name)) => {
                    self.add(NameKind::Namespace, namespace);
                    self.add(NameKind::Object, name);
                }
                None => self.add(NameKind::Object, key),
            }
        }
    }

    /// Adds the namespace and the name in a path of the Kubernetes API.
    fn add_api_path(&mut self, path: &str) {
        let path = path.split('?').next().unwrap_or_default();
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        match parts.next() {
            Some("api") => drop(parts.next()),
            _ => drop((parts.next(), parts.next())),
        }
        let mut first = parts.next();
        if first == Some("watch") {
            first = parts.next();
        }
        let name = match first {
            Some("namespaces") => {
                let namespace = parts.next().unwrap_or_default();
                self.add(NameKind::Namespace, namespace);
                parts.next().and_then(|_resource| parts.next())
            }
            _ => parts.next(),
        };
        if let Some(name) = name {
            self.add(NameKind::Object, name);
        }
    }
}

/// Returns a name as far as no component cuts it: the costs of clients cut names at 120 bytes, and
/// end them with an ellipsis. So a long name and its cut form have one word.
pub(super) fn canonical(name: &str) -> &str {
    let name = name.strip_suffix('…').unwrap_or(name);
    name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or(name)
}

fn is_no_url(letter: char) -> bool {
    letter.is_whitespace() || "\"'<>()[]{},;".contains(letter) && !"[]".contains(letter)
}

fn is_no_name(letter: char) -> bool {
    !letter.is_alphanumeric() && !"-._".contains(letter)
}

const SELECTORS: [(&str, NameKind); 4] = [
    ("metadata.name", NameKind::Object),
    ("metadata.namespace", NameKind::Namespace),
    ("spec.nodeName", NameKind::Object),
    ("involvedObject.name", NameKind::Object),
];
/// The 120 bytes of a cut name, less the ellipsis.
pub(super) const NAME_BYTES_MAX: usize = 117;
