//! How a list or a watch is asked for: what decides about its cost, and what a client can change.

/// How a list or a watch is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Habit {
    /// Where it starts.
    pub start: Start,
    /// Whether it has a limit.
    pub is_limited: bool,
    /// The form of the objects that it asks for first.
    pub form: AskedForm,
    /// Whether it accepts gzip.
    pub takes_gzip: bool,
    /// Whether the same was asked for on the same connection before.
    pub is_repeated: bool,
}

/// The resourceVersion that a list or a watch starts at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Start {
    /// None: the latest state.
    #[default]
    Unset,
    /// `0`: any state.
    Any,
    /// A certain one.
    Version,
    /// The next page of a list.
    Continue,
}

/// The form of objects that a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AskedForm {
    /// JSON, also where nothing is asked for.
    #[default]
    Json,
    /// Protobuf.
    Protobuf,
    /// A table, as kubectl prints it.
    Table,
    /// The metadata only.
    Metadata,
    /// Another one.
    Other,
}

impl Start {
    /// Reads the parameters of a request.
    pub fn of(resource_version: Option<&str>, continue_token: Option<&str>) -> Self {
        match (resource_version, continue_token) {
            (_, Some(token)) if !token.is_empty() => Self::Continue,
            (None | Some(""), _) => Self::Unset,
            (Some("0"), _) => Self::Any,
            (Some(_), _) => Self::Version,
        }
    }
}

impl AskedForm {
    /// Reads the text of an `Accept` header: the first clause counts.
    pub fn of(accept: &str) -> Self {
        let first = accept.split(',').next().unwrap_or_default().trim();
        if first.contains("as=Table") {
            return Self::Table;
        }
        if first.contains("as=PartialObjectMetadata") {
            return Self::Metadata;
        }
        match first.split(';').next().unwrap_or_default().trim() {
            "" | "*/*" | "application/json" => Self::Json,
            "application/vnd.kubernetes.protobuf" => Self::Protobuf,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_headers_are_read() {
        assert_eq!(Start::of(None, None), Start::Unset);
        assert_eq!(Start::of(Some(""), Some("")), Start::Unset);
        assert_eq!(Start::of(Some("0"), None), Start::Any);
        assert_eq!(Start::of(Some("17"), None), Start::Version);
        assert_eq!(Start::of(None, Some("abc")), Start::Continue);
        for (accept, form) in [
            ("", AskedForm::Json),
            ("application/json, */*", AskedForm::Json),
            ("application/vnd.kubernetes.protobuf,application/json", AskedForm::Protobuf),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", AskedForm::Table),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                AskedForm::Metadata,
            ),
            ("application/yaml", AskedForm::Other),
        ] {
            assert_eq!(AskedForm::of(accept), form, "{accept}");
        }
    }
}
