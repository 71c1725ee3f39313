//! Forms of responses: Accept headers with the form that the upstream negotiates (docs/semantics.md
//! §8.1 to §8.4), written by hand; user agents, `pretty`, Accept-Encoding.

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Form {
    /// JSON, compact or indented.
    Json,
    Protobuf,
    /// Metadata only, in JSON.
    PartialJson,
    /// Metadata only, in protobuf.
    PartialProtobuf,
    /// A form that the upstream makes (Table, YAML, CBOR), or a 406.
    Upstream,
}

/// An Accept header, with its header lines.
#[derive(Debug)]
pub(crate) struct Accept {
    pub(crate) texts: &'static [&'static str],
    /// The forms of a built-in resource's object, list and watch.
    pub(crate) built_in: [Form; 3],
    /// The forms of a custom resource.
    pub(crate) custom: [Form; 3],
}

pub(crate) static JSON: Accept = both(&[], [J, J, J]);

const J: Form = Form::Json;
const P: Form = Form::Protobuf;
const M: Form = Form::PartialJson;
const B: Form = Form::PartialProtobuf;
const U: Form = Form::Upstream;

const fn both(texts: &'static [&'static str], forms: [Form; 3]) -> Accept {
    Accept { texts, built_in: forms, custom: forms }
}

const fn each(texts: &'static [&'static str], built_in: [Form; 3], custom: [Form; 3]) -> Accept {
    Accept { texts, built_in, custom }
}

/// All Accept headers of the corpus.
pub(crate) static ACCEPTS: [Accept; 53] = [
    both(&["application/json"], [J, J, J]),
    both(&["*/*"], [J, J, J]),
    each(&["*"], [U, U, U], [J, J, J]),
    each(&["application/*"], [U, U, U], [J, J, J]),
    both(&["text/*"], [U, U, U]),
    both(&["text/plain"], [U, U, U]),
    both(&["APPLICATION/JSON"], [U, U, U]),
    both(&["application/json;charset=utf-8"], [J, J, J]),
    both(&["application/json; charset=utf-8"], [J, J, J]),
    both(&["application/json;q=0.5"], [J, J, J]),
    both(&["application/json;q=0"], [J, J, J]),
    both(&["application/json;pretty=1"], [J, J, J]),
    both(&["application/json;pretty=0"], [J, J, J]),
    both(&["application/json;stream=watch"], [J, J, J]),
    both(&["application/json;stream=nonsense,application/json"], [J, J, J]),
    both(&["application/json;sv=v1"], [J, J, J]),
    both(&["application/json;sv=v2"], [U, U, U]),
    both(&["application/json, */*;q=0.8"], [J, J, J]),
    both(&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], [J, J, J]),
    both(&["nonsense,application/json"], [J, J, J]),
    both(&["a/b/c,application/json"], [J, J, J]),
    both(&["application/json", "application/yaml"], [J, J, J]),
    both(&["application/yaml", "application/json"], [U, U, U]),
    both(&["application/yaml"], [U, U, U]),
    both(&["application/json;q=0.9,application/yaml;q=0.8"], [J, J, J]),
    both(&["application/yaml;q=0.9,application/json;q=0.8"], [U, U, U]),
    both(&["application/cbor"], [U, U, U]),
    // Only the upstream knows whether it supports CBOR.
    both(&["application/cbor,application/json"], [U, U, U]),
    each(&["application/vnd.kubernetes.protobuf"], [P, P, P], [U, U, U]),
    each(&["application/vnd.kubernetes.protobuf,application/json"], [P, P, P], [J, J, J]),
    each(&["application/vnd.kubernetes.protobuf;stream=watch"], [P, P, P], [U, U, U]),
    each(&["application/vnd.kubernetes.protobuf,*/*"], [P, P, P], [J, J, J]),
    each(&["application/json;q=0.1,application/vnd.kubernetes.protobuf"], [P, P, P], [J, J, J]),
    both(&["application/json,application/vnd.kubernetes.protobuf"], [J, J, J]),
    both(&["application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"], [U, U, U]),
    both(&["application/json;as=Table;g=meta.k8s.io;v=v1"], [U, U, U]),
    both(&["application/json;as=Table;g=meta.k8s.io;v=v1beta1"], [U, U, U]),
    both(
        &[
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        ],
        [U, U, U],
    ),
    both(&["application/json;as=Table;g=meta.k8s.io;v=v2,application/json"], [J, J, J]),
    both(&["application/json;as=Nonsense;g=meta.k8s.io;v=v1,application/json"], [J, J, J]),
    both(&["application/json;as=Table;g=example.com;v=v1"], [U, U, U]),
    // The endpoint determines the kind: no second choice is made if it does not fit. Metadata of
    // `v1beta1` is forwarded.
    both(&["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"], [M, U, M]),
    both(&["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"], [U, U, U]),
    both(&["application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"], [U, M, U]),
    both(&["application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1"], [U, U, U]),
    both(
        &["application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"],
        [U, M, U],
    ),
    both(
        &["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;pretty=1,application/json"],
        [M, U, M],
    ),
    both(
        &["application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"],
        [B, U, B],
    ),
    both(
        &["application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"],
        [U, U, U],
    ),
    both(
        &["application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"],
        [U, B, U],
    ),
    both(
        &[
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1,application/json",
        ],
        [U, U, U],
    ),
    // The requests of client-go's metadata informers.
    both(
        &[
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
        ],
        [U, B, U],
    ),
    both(
        &[
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        ],
        [B, U, B],
    ),
];

/// Returns an Accept header of the table by its first line.
pub(crate) fn accept(text: &str) -> &'static Accept {
    ACCEPTS.iter().find(|accept| accept.texts == [text]).expect("it is in the table")
}

/// §8.6: user agents with this prefix get indented JSON.
pub(crate) static AGENTS: [&str; 7] = [
    "",
    "kubectl/v1.36.2 (linux/amd64) kubernetes/0000000",
    "curl/8.5.0",
    "Wget/1.0",
    "Mozilla/5.0 (X11)",
    "Curl/8.5.0",
    "xcurl",
];

pub(crate) static PRETTIES: [&str; 7] = ["", "true", "1", "T", "false", "x", "0"];

/// §8.7: only the bare token.
pub(crate) static PACKINGS: [&str; 7] =
    ["", "gzip", "gzip;q=1", "deflate, gzip", "br", "*", "gzip, deflate, br"];
