//! A digest over the objects of a list, by which one Weir compares what it received from another
//! one with what that one stores (`docs/decisions/seeding-from-siblings.md`).
//!
//! It covers keys, resourceVersions and bodies in the order of the list, each with its length, so
//! that no two lists have the same input. It shows that a list arrived as it is stored. It says
//! nothing about whether what is stored is right.

use aws_lc_rs::digest::{Context, SHA256};

use crate::api::seed::DIGEST_BYTES;
use crate::codec::object::Object;

/// Returns the digest of objects in their order. Takes about a second for a gigabyte.
pub(crate) fn digest<'a>(objects: impl IntoIterator<Item = &'a Object>) -> [u8; DIGEST_BYTES] {
    let mut context = Context::new(&SHA256);
    for object in objects {
        let key = object.key.as_str().as_bytes();
        context.update(&(key.len() as u64).to_le_bytes());
        context.update(key);
        context.update(&object.resource_version.0.to_le_bytes());
        context.update(&(object.body.len() as u64).to_le_bytes());
        context.update(&object.body);
    }
    let digest = context.finish();
    let mut bytes = [0; DIGEST_BYTES];
    bytes.iter_mut().zip(digest.as_ref()).for_each(|(byte, of)| *byte = *of);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json;
    use crate::codec::json::tests::config_maps;

    fn object(name: &str, resource_version: u64, text: &str) -> Object {
        let body = format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"ns","uid":"u","resourceVersion":"{resource_version}"}},"data":{{"of":"{text}"}}}}"#
        );
        json::object(body.as_bytes(), &config_maps()).unwrap()
    }

    #[test]
    fn every_difference_of_a_list_changes_the_digest() {
        let of = |objects: &[Object]| digest(objects);
        let all = [object("a", 5, "x"), object("b", 6, "y")];
        let same = [object("a", 5, "x"), object("b", 6, "y")];
        assert_eq!(of(&all), of(&same));
        for other in [
            vec![object("a", 5, "x")],
            vec![object("b", 6, "y"), object("a", 5, "x")],
            vec![object("a", 5, "z"), object("b", 6, "y")],
            vec![object("a", 4, "x"), object("b", 6, "y")],
            vec![object("a", 5, "x"), object("c", 6, "y")],
            vec![],
        ] {
            assert_ne!(of(&all), of(&other));
        }
    }
}
