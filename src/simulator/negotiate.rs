//! Content negotiation: the media type of a response, and the view of its objects
//! (`docs/semantics.md` §8.1 to §8.5).
//!
//! YAML is never chosen: a clause for it is ignored, as is one for protobuf where a built-in kind
//! has no table.

use super::kinds::Kind;
use super::protobuf;
use super::request::Request;
use super::status::ApiError;

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    /// JSON.
    Json,
    /// Kubernetes' protobuf.
    Protobuf,
}

impl Media {
    /// Returns the `Content-Type` of a body. That of a watch has parameters (`docs/semantics.md`
    /// §8.3).
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => PROTOBUF,
        }
    }
}

/// The view of objects in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The objects themselves.
    Plain,
    /// A Table of this version of `meta.k8s.io`.
    Table(String),
    /// Metadata only, of this version of `meta.k8s.io`.
    Partial(String),
}

/// The negotiated form of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// The encoding.
    pub(super) media: Media,
    pub(super) view: View,
    /// Whether the clause asks for indented JSON.
    pub(super) pretty: bool,
    /// The kind that the clause requests; empty for the object's own.
    to: String,
}

impl Form {
    /// Returns a form with plain objects.
    pub(super) fn bare(media: Media, pretty: bool) -> Self {
        Self { media, view: View::Plain, pretty, to: String::new() }
    }

    /// Rejects a list requested as an object, or the reverse (`docs/semantics.md` §8.4, C). The
    /// upstream checks this only after it has produced the result.
    pub(super) fn check(&self, kind: &Kind, shape: Shape) -> Result<(), ApiError> {
        mismatch(kind, shape, &self.to)
    }
}

/// The shape of a handler's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One object.
    Object,
    /// A list.
    List,
    /// A stream of events.
    Watch,
}

/// One clause of an `Accept` header.
struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

/// Chooses the form of a success.
pub(super) fn negotiate(request: &Request, kind: &Kind, shape: Shape) -> Result<Form, ApiError> {
    let accept = accept(request);
    if !kind.custom {
        prefilter(accept, shape)?;
    }
    let chosen = choose(accept, |clause, media| {
        let get = |name: &str| clause.get(name);
        let version = get("sv").is_none_or(|sv| matches!(sv, "" | "v1"));
        let stream = get("stream").is_none_or(|stream| matches!(stream, "" | "watch"));
        let conversion = ["as", "g", "v"].iter().any(|name| get(name).is_some());
        let (to, group) = (get("as").unwrap_or_default(), get("g").unwrap_or_default());
        let target = get("v").unwrap_or_default().to_owned();
        let is_meta = group == "meta.k8s.io" && matches!(target.as_str(), "v1" | "v1beta1");
        let json = media == Media::Json;
        let view = match to {
            _ if !version || !stream => return None,
            _ if !conversion => {
                let offered = json || (!kind.custom && protobuf::knows(&kind.kind));
                return offered.then_some((View::Plain, ""));
            }
            "Table" if is_meta && json => View::Table(target),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if is_meta => {
                View::Partial(target)
            }
            _ => return None,
        };
        Some((view, to))
    });
    let Some((media, (view, to), pretty)) = chosen else {
        return Err(not_acceptable(if shape == Shape::Watch { STREAMS } else { TYPES }));
    };
    Ok(Form { media, view, pretty, to: to.to_owned() })
}

/// Chooses the form of discovery: returns whether it is the aggregated one, where that is offered
/// (`docs/semantics.md` §10.2).
pub(super) fn negotiate_discovery(request: &Request, offered: bool) -> Result<bool, ApiError> {
    let accept = accept(request);
    prefilter(accept, Shape::Object)?;
    let chosen = choose(accept, |clause, media| {
        let get = |name: &str| clause.get(name);
        match (get("g"), get("v"), get("as")) {
            _ if media != Media::Json => None,
            (None, None, None) => Some(false),
            (Some("apidiscovery.k8s.io"), Some("v2"), Some("APIGroupDiscoveryList")) => {
                offered.then_some(true)
            }
            _ => None,
        }
    });
    chosen.map(|(_, aggregated, _)| aggregated).ok_or_else(|| not_acceptable(TYPES))
}

/// Chooses the encoding of a failure; `None` if no clause allows one, for which JSON is indented.
pub(super) fn negotiate_error(request: &Request) -> Option<(Media, bool)> {
    let chosen = choose(accept(request), |clause, _| {
        let stream = clause.get("stream").is_none_or(|stream| matches!(stream, "" | "watch"));
        let plain = ["as", "g", "v"].iter().all(|name| clause.get(name).is_none());
        let version = clause.get("sv").is_none_or(str::is_empty);
        (stream && plain && version).then_some(())
    });
    chosen.map(|(media, (), pretty)| (media, pretty))
}

/// Returns the first `Accept` header. The upstream ignores the others.
fn accept(request: &Request) -> &str {
    request.header("accept")
}

/// The check of the header by go-restful, before the negotiation proper (`docs/semantics.md` §8.2).
fn prefilter(accept: &str, shape: Shape) -> Result<(), ApiError> {
    let bare = |clause: &str| clause.split(';').next().unwrap_or_default().trim().to_owned();
    let produced = ["application/json", "application/yaml", PROTOBUF, "*/*"];
    if accept.is_empty()
        || accept.split(',').any(|clause| produced.contains(&bare(clause).as_str()))
    {
        return Ok(());
    }
    let streams = if shape == Shape::Object { "" } else { RESTFUL_STREAMS };
    let message = format!("406: Not Acceptable\n\nAvailable representations: {TYPES}{streams}");
    let mut error = ApiError::new(406, "NotAcceptable", message);
    error.details = Some(Box::default());
    Err(error)
}

/// Tries the clauses, best first, each with the server's media types in their order. Returns the
/// first result of `offer`.
fn choose<'a, T>(
    accept: &'a str,
    offer: impl Fn(&Clause<'a>, Media) -> Option<T>,
) -> Option<(Media, T, bool)> {
    let any = Clause { main: "*", sub: "*", params: Vec::new(), quality: 1.0 };
    let mut clauses: Vec<Clause<'_>> = if accept.is_empty() {
        vec![any]
    } else {
        accept.split(',').filter_map(Clause::parse).collect()
    };
    clauses.sort_by(|left, right| {
        let wild = |clause: &Clause<'_>| (clause.main == "*", clause.sub == "*");
        right.quality.total_cmp(&left.quality).then(wild(left).cmp(&wild(right)))
    });
    clauses.iter().find_map(|clause| {
        let offered = [(Media::Json, "json"), (Media::Protobuf, "vnd.kubernetes.protobuf")];
        offered.into_iter().find_map(|(media, sub)| {
            let named = clause.main == "application" && (clause.sub == sub || clause.sub == "*");
            let wild = clause.main == "*" && clause.sub == "*";
            let taken = if named || wild { offer(clause, media) } else { None };
            taken.map(|taken| (media, taken, clause.get("pretty") == Some("1")))
        })
    })
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';');
        let kind = parts.next().unwrap_or_default();
        let (main, sub) = match kind.split_once('/') {
            Some((_, rest)) if rest.contains('/') => return None,
            Some((main, sub)) => (main.trim(), sub.trim()),
            None if kind.trim() == "*" => ("*", "*"),
            None => return None,
        };
        let pairs = parts.filter_map(|param| param.split_once('='));
        let (mut params, mut quality) = (Vec::new(), 1.0);
        for (name, value) in pairs.map(|(name, value)| (name.trim(), value.trim())) {
            match name {
                "q" => quality = value.parse().unwrap_or(0.0),
                _ => params.push((name, value)),
            }
        }
        Some(Self { main, sub, params, quality })
    }

    /// Returns the last value of a parameter.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.params.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// Rejects a list requested as an object, or the reverse (`docs/semantics.md` §8.1).
fn mismatch(kind: &Kind, shape: Shape, to: &str) -> Result<(), ApiError> {
    let package = match kind.group.split('.').next() {
        _ if kind.custom => "unstructured",
        None | Some("") => "core",
        Some(first) => first,
    };
    let (object, list) = if kind.custom {
        ("Unstructured", "UnstructuredList")
    } else {
        (kind.kind.as_str(), kind.list_kind.as_str())
    };
    let what = match (shape, to) {
        (Shape::List, "PartialObjectMetadata") => format!("a list (*{package}.{list})"),
        (Shape::Object, "PartialObjectMetadataList") => format!("not a list (*{package}.{object})"),
        _ => return Ok(()),
    };
    let message = format!("you requested {to}, but the requested object is {what}");
    Err(ApiError::new(406, "NotAcceptable", message))
}

fn not_acceptable(types: &str) -> ApiError {
    let message = format!("only the following media types are accepted: {types}");
    ApiError::new(406, "NotAcceptable", message)
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMS: &str =
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
const RESTFUL_STREAMS: &str =
    ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
