//! Negotiates a form from the text of an `Accept` header (`docs/semantics.md` §8.1, §8.2).
//!
//! The API server sorts the clauses with an unstable sort and a comparison that is not an order.
//! Where a header has wildcards and its clauses differ in form and quality, the result therefore
//! depends on the sorting algorithm. Such a header is forwarded, as is any header whose syntax is
//! unusual, or that may choose CBOR (`docs/decisions/uncached-resources.md`).

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::form::{
    Encoding, ErrorForm, Form, MANAGED_FIELDS, PARTIAL_OBJECT_METADATA,
    PARTIAL_OBJECT_METADATA_LIST, View,
};
use crate::request_info::Verb;
use crate::resource::Shape;

/// Returns the form that `accept` negotiates; `None` if Weir does not serve it, or cannot know
/// which form the API server would choose.
pub(super) fn negotiate_accept(accept: &str, shape: Shape, verb: Verb) -> Option<Form> {
    if shape == Shape::BuiltIn && !passes_prefilter(accept) {
        return None;
    }
    match choose(accept, |clause| clause.candidate(shape, verb))? {
        Candidate::Form(form) => Some(form),
        Candidate::Yaml | Candidate::NotServed | Candidate::Skip => None,
    }
}

/// Returns the form of an error that `accept` negotiates, by the API server's filters: go-restful's
/// does not apply, and conversions do not count. `None` if the API server finds none, or Weir
/// cannot know which.
pub(super) fn negotiate_error(accept: &str) -> Option<ErrorForm> {
    match choose(accept, |clause| clause.error_candidate())? {
        Candidate::Form(Form { encoding: Encoding::Protobuf, .. }) => Some(ErrorForm::Protobuf),
        Candidate::Form(Form { pretty, .. }) => Some(ErrorForm::Json { pretty }),
        Candidate::Yaml => Some(ErrorForm::Yaml),
        Candidate::NotServed | Candidate::Skip => None,
    }
}

/// Returns what the API server would choose among the clauses of `accept`.
fn choose(accept: &str, candidate: impl Fn(&Clause<'_>) -> Candidate) -> Option<Candidate> {
    let clauses: SmallVec<[Clause<'_>; CLAUSES_USUAL]> =
        accept.split(',').filter_map(parse_clause).collect::<Option<_>>()?;
    let mut candidates: SmallVec<[(&Clause<'_>, Candidate); CLAUSES_USUAL]> = clauses
        .iter()
        .map(|clause| (clause, candidate(clause)))
        .filter(|(_, candidate)| *candidate != Candidate::Skip)
        .collect();
    let (_, first) = *candidates.first()?;
    if candidates.iter().any(|(_, candidate)| *candidate != first) {
        let (quality, wildcards) =
            (clauses.first()?.quality, clauses.iter().any(Clause::is_wildcard));
        let equal = clauses.iter().all(|clause| clause.quality == quality);
        let plain = clauses.iter().all(|clause| clause.quality.is_some());
        if clauses.len() > STABLE_CLAUSES_MAX || !plain || (wildcards && !equal) {
            return None;
        }
        candidates.sort_by(|(a, _), (b, _)| {
            let quality = b.quality.partial_cmp(&a.quality).unwrap_or(Ordering::Equal);
            quality
                .then(a.kind_is_wild().cmp(&b.kind_is_wild()))
                .then(a.is_wildcard().cmp(&b.is_wildcard()))
        });
    }
    candidates.first().map(|(_, candidate)| *candidate)
}

/// The form that one clause would give on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidate {
    /// A form that Weir serves.
    Form(Form),
    /// YAML, which only the API server writes.
    Yaml,
    /// A form that Weir does not serve.
    NotServed,
    /// No form: the API server ignores the clause.
    Skip,
}

/// One clause of an `Accept` header.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    params: Vec<(&'a str, &'a str)>,
    /// `None` if it is not a plain decimal fraction.
    quality: Option<f32>,
}

impl Clause<'_> {
    fn kind_is_wild(&self) -> bool {
        self.kind == "*"
    }

    fn is_wildcard(&self) -> bool {
        self.kind == "*" || self.subtype == "*"
    }

    fn candidate(&self, shape: Shape, verb: Verb) -> Candidate {
        let conversion = self.conversion();
        let converts = conversion.iter().any(Option::is_some);
        let encoding = match (self.kind, self.subtype) {
            ("application", "json" | "*") | ("*", "*") => Some(Encoding::Json),
            ("application", "vnd.kubernetes.protobuf") if shape == Shape::Custom && !converts => {
                return Candidate::Skip;
            }
            ("application", "vnd.kubernetes.protobuf") => Some(Encoding::Protobuf),
            ("application", "yaml" | "cbor" | "cbor-seq") => None,
            _ => return Candidate::Skip,
        };
        if !matches!(self.param("stream"), None | Some("" | "watch"))
            || !matches!(self.param("sv"), None | Some("" | "v1"))
        {
            return Candidate::Skip;
        }
        let Some(encoding) = encoding else { return Candidate::NotServed };
        // The next version of Kubernetes may give another parameter a meaning.
        if !self.params.iter().all(|(name, _)| KNOWN_PARAMETERS.contains(name)) {
            return Candidate::NotServed;
        }
        let view = match converts.then(|| convert(conversion, verb)) {
            None => View::Full,
            Some(Conversion::Metadata) => View::Metadata,
            Some(Conversion::Table) if encoding == Encoding::Json => return Candidate::NotServed,
            Some(Conversion::OtherMetadata) => return Candidate::NotServed,
            Some(Conversion::Table | Conversion::None) => return Candidate::Skip,
        };
        let view = match self.param("drop") {
            None => view,
            Some(MANAGED_FIELDS) => view.without_managed_fields(),
            // An API server may drop other fields, or refuse to.
            Some(_) => return Candidate::NotServed,
        };
        let pretty = encoding == Encoding::Json && self.param("pretty") == Some("1");
        Candidate::Form(Form { encoding, view, pretty })
    }

    /// Returns the form of an error. CBOR is skipped, since the API server does not offer it by
    /// default.
    fn error_candidate(&self) -> Candidate {
        let converts = self.conversion().iter().any(Option::is_some);
        let stream = self.param("stream").unwrap_or_default();
        if converts
            || !matches!(stream, "" | "watch")
            || !matches!(self.param("sv"), None | Some(""))
        {
            return Candidate::Skip;
        }
        match (self.kind, self.subtype) {
            ("application", "json" | "*") | ("*", "*") => {
                let pretty = self.param("pretty") == Some("1");
                Candidate::Form(Form { pretty, ..Form::JSON })
            }
            ("application", "vnd.kubernetes.protobuf") => {
                Candidate::Form(Form { encoding: Encoding::Protobuf, ..Form::JSON })
            }
            // YAML has no streams.
            ("application", "yaml") if stream.is_empty() => Candidate::Yaml,
            _ => Candidate::Skip,
        }
    }

    /// Returns the parameters `as`, `g` and `v`.
    fn conversion(&self) -> [Option<&str>; 3] {
        ["as", "g", "v"].map(|name| self.param(name))
    }

    /// Returns a parameter. A later one replaces an earlier one of the same name.
    fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// The conversion that the parameters `as`, `g` and `v` request (`docs/semantics.md` §8.1).
enum Conversion {
    /// The metadata-only view that Weir serves.
    Metadata,
    /// A Table, which exists in JSON and YAML only. It is forwarded
    /// (`docs/decisions/left-to-others.md`).
    Table,
    /// A metadata-only view that Weir does not serve: one of the older `v1beta1`, or one whose kind
    /// does not fit the verb (a list's for a get, or the reverse), which ends in 406.
    OtherMetadata,
    /// A target that the API server does not know. It ignores the clause.
    None,
}

fn convert(conversion: [Option<&str>; 3], verb: Verb) -> Conversion {
    let [Some(kind), Some("meta.k8s.io"), Some(version)] = conversion else {
        return Conversion::None;
    };
    if !matches!(version, "v1" | "v1beta1") {
        return Conversion::None;
    }
    let metadata =
        if verb == Verb::List { PARTIAL_OBJECT_METADATA_LIST } else { PARTIAL_OBJECT_METADATA };
    match kind {
        "Table" => Conversion::Table,
        kind if kind == metadata && version == "v1" => Conversion::Metadata,
        PARTIAL_OBJECT_METADATA | PARTIAL_OBJECT_METADATA_LIST => Conversion::OtherMetadata,
        _ => Conversion::None,
    }
}

/// How many clauses are stored without an allocation: as many as Kubernetes' own clients send.
const CLAUSES_USUAL: usize = 3;

/// The parameters that Weir implements, and `charset`, which no version reads.
const KNOWN_PARAMETERS: [&str; 8] = ["as", "g", "v", "stream", "sv", "drop", "pretty", "charset"];

/// Up to this number Go's sort is an insertion sort, which keeps the order of equal clauses.
const STABLE_CLAUSES_MAX: usize = 12;

/// Applies go-restful's filter, which knows no wildcard but `*/*` (`docs/semantics.md` §8.2).
fn passes_prefilter(accept: &str) -> bool {
    accept.split(',').any(|clause| {
        let media_type = clause.split(';').next().unwrap_or_default().trim_matches(' ');
        matches!(
            media_type,
            "*/*" | "application/json" | "application/yaml" | "application/vnd.kubernetes.protobuf"
        )
    })
}

/// Parses a clause. Returns `None` if the API server drops it, and `Some(None)` if its syntax is
/// unusual, so that releases of the API server may read it differently.
fn parse_clause(clause: &str) -> Option<Option<Clause<'_>>> {
    let mut parts = clause.split(';');
    let media_type = parts.next().unwrap_or_default().trim_matches(' ');
    let (kind, subtype) = match media_type.split_once('/') {
        None if media_type == "*" => ("*", "*"),
        None => return None,
        Some((_, subtype)) if subtype.contains('/') => return None,
        Some(both) => both,
    };
    if !is_token(kind) || !is_token(subtype) {
        return Some(None);
    }
    let mut parsed = Clause { kind, subtype, params: Vec::new(), quality: Some(1.0) };
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            // A parameter without a value is ignored.
            continue;
        };
        let name = name.trim_matches(' ');
        if value.is_empty() {
            // goautoneg ignores it.
            continue;
        }
        if name == "q" {
            parsed.quality = parse_quality(value);
        } else if is_token(name) && is_token(value.trim_matches(' ')) {
            parsed.params.push((name, value.trim_matches(' ')));
        } else {
            return Some(None);
        }
    }
    Some(Some(parsed))
}

/// Returns the quality if it is unambiguous: digits and at most one point.
fn parse_quality(value: &str) -> Option<f32> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { value.parse().ok() } else { None }
}

/// Whether `text` is a token (RFC 9110): no blanks, quotes or separators.
fn is_token(text: &str) -> bool {
    let mark = |byte: u8| matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || mark(byte))
}
