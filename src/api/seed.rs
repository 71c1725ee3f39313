//! The header `X-Weir-Seed`, by which one Weir fills its cache from another one
//! (`docs/decisions/seeding-from-siblings.md`).
//!
//! The request is a plain list with `resourceVersion=0`. Its header says in which form the asker
//! stores objects, and from which resourceVersion its clients want to watch. A Weir that gets it
//! answers from its cache or refuses; it never forwards the request, and starts no cache for it.
//! The header of the response describes the list that follows, for the asker to compare.
//!
//! Both headers are `name=value` fields between semicolons. Unknown fields are ignored, so that
//! later releases can add some.

use std::fmt;
use std::str::FromStr;

use http::{HeaderMap, HeaderName};

use crate::api::resource_version::ResourceVersion;

/// The header of the request and of the response.
pub const SEED_HEADER: HeaderName = HeaderName::from_static("x-weir-seed");

/// The form in which this release stores objects. It must change with everything that changes the
/// bytes of a stored object, or the digest over them.
pub const CODEC_VERSION: u32 = 1;

/// The bytes of a [`SeedManifest::digest`].
pub const DIGEST_BYTES: usize = 32;

/// The request for the state of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedRequest {
    /// The asker's [`CODEC_VERSION`].
    pub codec: u32,
    /// The resourceVersion of the requested state, which counts if the sibling's history reaches
    /// back to it. Otherwise the newest state is requested.
    pub at: Option<ResourceVersion>,
}

/// The sibling's description of the list that it sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedManifest {
    /// The sibling's [`CODEC_VERSION`].
    pub codec: u32,
    /// The uid of the namespace kube-system.
    pub cluster: String,
    /// The API server's `gitVersion`: another release may write the same objects in other bytes.
    pub release: String,
    /// The revision of a custom resource's definition, by which the API server writes the objects;
    /// 0 for other resources.
    pub definition: u64,
    /// How often the state went from one Weir to another since an API server listed it, without a
    /// comparison of every byte. 0 if the field is missing, as in releases that send no other
    /// state.
    pub generation: u32,
    /// The number of objects.
    pub objects: u64,
    /// SHA-256 over the objects in their order (`cache::seed::digest`).
    pub digest: [u8; DIGEST_BYTES],
}

impl SeedRequest {
    /// Whether a request has the header: it must not be forwarded.
    pub fn is_in(headers: &HeaderMap) -> bool {
        headers.contains_key(SEED_HEADER)
    }

    /// Reads the header of a request; `None` if it has none. A header that cannot be read counts as
    /// one of another release, which is refused.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(SEED_HEADER)?;
        let text = value.to_str().unwrap_or_default();
        let codec = field(text, "codec").and_then(|codec| codec.parse().ok());
        let at = field(text, "at").and_then(ResourceVersion::parse);
        Some(Self { codec: codec.unwrap_or_default(), at })
    }
}

impl fmt::Display for SeedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "codec={}", self.codec)?;
        self.at.map_or(Ok(()), |at| write!(f, "; at={at}"))
    }
}

impl fmt::Display for SeedManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { codec, cluster, release, definition, generation, objects, digest } = self;
        write!(f, "codec={codec}; cluster={cluster}; release={release}; ")?;
        write!(f, "definition={definition}; generation={generation}; objects={objects}; ")?;
        f.write_str("digest=")?;
        digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A header of a response that does not describe a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header X-Weir-Seed does not describe a list")]
pub struct InvalidManifest;

impl FromStr for SeedManifest {
    type Err = InvalidManifest;

    fn from_str(text: &str) -> Result<Self, InvalidManifest> {
        let required = |name| field(text, name).filter(|it| !it.is_empty()).ok_or(InvalidManifest);
        Ok(Self {
            codec: required("codec")?.parse().map_err(|_| InvalidManifest)?,
            cluster: required("cluster")?.to_owned(),
            release: required("release")?.to_owned(),
            definition: required("definition")?.parse().map_err(|_| InvalidManifest)?,
            generation: field(text, "generation")
                .unwrap_or("0")
                .parse()
                .map_err(|_| InvalidManifest)?,
            objects: required("objects")?.parse().map_err(|_| InvalidManifest)?,
            digest: parse_digest(required("digest")?).ok_or(InvalidManifest)?,
        })
    }
}

/// Returns the value of the first field with a name.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let fields = text.split(';').filter_map(|field| field.trim().split_once('='));
    fields.filter(|(known, _)| *known == name).map(|(_, value)| value).next()
}

fn parse_digest(text: &str) -> Option<[u8; DIGEST_BYTES]> {
    if text.len() != 2 * DIGEST_BYTES {
        return None;
    }
    let mut digest = [0; DIGEST_BYTES];
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        // `from_str_radix` would accept a sign.
        let is_hex = pair.bytes().all(|it| it.is_ascii_hexdigit());
        *byte = u8::from_str_radix(pair, 16).ok().filter(|_| is_hex)?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_manifest_is_read_as_it_was_written(
            codec: u32,
            definition: u64,
            generation: u32,
            objects: u64,
            digest: [u8; DIGEST_BYTES],
            cluster in "[0-9a-f-]{1,36}",
            release in "v1\\.[0-9]{1,3}(\\+[a-z0-9]{1,8})?",
        ) {
            let manifest =
                SeedManifest { codec, cluster, release, definition, generation, objects, digest };
            prop_assert_eq!(manifest.to_string().parse(), Ok(manifest));
        }

        #[test]
        fn a_request_is_read_as_it_was_written(codec: u32, at in prop::option::of(1_u64..)) {
            let request = SeedRequest { codec, at: at.map(ResourceVersion) };
            let value = HeaderValue::try_from(request.to_string()).unwrap();
            let headers = HeaderMap::from_iter([(SEED_HEADER, value)]);
            prop_assert_eq!(SeedRequest::from_headers(&headers), Some(request));
        }

        #[test]
        fn no_text_of_a_peer_breaks_the_parser(text in "\\PC{0,200}", cut in 0_usize..200) {
            let manifest = SeedManifest {
                codec: 1,
                cluster: "c".to_owned(),
                release: "v1.36.2".to_owned(),
                definition: 0,
                generation: 0,
                objects: 3,
                digest: [7; DIGEST_BYTES],
            };
            let whole = manifest.to_string();
            if let Some(part) = whole.get(..cut.min(whole.len())) {
                let parsed = part.parse::<SeedManifest>();
                prop_assert!(parsed.is_err() || part == whole);
            }
            drop(text.parse::<SeedManifest>());
        }
    }

    #[test]
    fn a_manifest_of_an_older_release_has_no_generation() {
        let digest = "00".repeat(DIGEST_BYTES);
        let older = "codec=1; cluster=c; release=v1.36.2; definition=0; objects=3; digest=";
        let manifest = format!("{older}{digest}").parse::<SeedManifest>().unwrap();
        assert_eq!(manifest.generation, 0);
        let wrong = format!("generation=-1; {older}{digest}");
        assert_eq!(wrong.parse::<SeedManifest>(), Err(InvalidManifest));
    }

    #[test]
    fn a_header_that_cannot_be_read_is_one_of_another_release() {
        let of = |value: &'static [u8]| {
            let value = HeaderValue::from_bytes(value).unwrap();
            SeedRequest::from_headers(&HeaderMap::from_iter([(SEED_HEADER, value)]))
        };
        assert_eq!(SeedRequest::from_headers(&HeaderMap::new()), None);
        for value in [&b""[..], b"\xff", b"codec=x", b"1"] {
            assert_eq!(of(value), Some(SeedRequest { codec: 0, at: None }));
        }
        assert_eq!(of(b"more=1; codec=2"), Some(SeedRequest { codec: 2, at: None }));
    }
}
