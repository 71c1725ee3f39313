//! The API server's warning that an API is deprecated.
//!
//! Webhooks and policies send warnings in the same header, and theirs may name objects. So only the
//! form is accepted in which kube-apiserver writes it (`pkg/util/deprecation` for its own types,
//! and the default text of a custom resource's deprecated version), and only its known parts are
//! kept: group, version and kind, and numbers of releases.

/// Returns the warning in the value of a `Warning` header, if it says that `version` (the group and
/// version of the request, as `apps/v1beta1` or `v1`) is deprecated.
pub fn deprecation_of<'a>(value: &'a str, version: &str) -> Option<&'a str> {
    let text = value.strip_prefix("299 - \"")?.strip_suffix('"')?;
    let rest = text.strip_prefix(version)?.strip_prefix(' ')?;
    let rest = kind(rest)?.strip_prefix(" is deprecated")?;
    let Some(after) = rest.strip_prefix(" in ").and_then(release) else {
        // The form of custom resources, which has nothing else.
        let end = replacement(rest).unwrap_or(rest);
        return end.is_empty().then_some(text);
    };
    let after = after.strip_prefix(", unavailable in ").and_then(release).unwrap_or(after);
    let after = replacement(after).unwrap_or(after);
    text.get(..text.len() - after.len())
}

/// Returns what follows a replacement, as `; use discovery.k8s.io/v1 EndpointSlice`.
fn replacement(text: &str) -> Option<&str> {
    let (version, rest) = text.strip_prefix("; use ")?.split_once(' ')?;
    let is_part = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '.' | '-' | '/');
    let number = version.rsplit('/').next().and_then(|part| part.strip_prefix('v'));
    let is_version =
        number.is_some_and(|number| number.starts_with(|letter: char| letter.is_ascii_digit()));
    if is_version && version.chars().all(is_part) { kind(rest) } else { None }
}

/// Returns what follows a kind. No object's name begins with a capital.
fn kind(text: &str) -> Option<&str> {
    let is_kind = text.starts_with(|letter: char| letter.is_ascii_uppercase());
    is_kind.then(|| text.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric()))
}

/// Returns what follows a release, as `v1.33+`.
fn release(text: &str) -> Option<&str> {
    let (major, rest) = text.strip_prefix('v')?.split_once('.')?;
    let minor = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let is_number = !major.is_empty() && major.bytes().all(|letter| letter.is_ascii_digit());
    if is_number && minor.len() < rest.len() { minor.strip_prefix('+') } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn deprecation(text: &str, version: &str) -> Option<String> {
        deprecation_of(&format!("299 - \"{text}\""), version).map(str::to_owned)
    }

    #[test]
    fn the_forms_of_the_api_server_are_kept() {
        for (version, text) in [
            ("v1", "v1 ComponentStatus is deprecated in v1.19+"),
            ("v1", "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            (
                "policy/v1beta1",
                "policy/v1beta1 PodSecurityPolicy is deprecated in v1.21+, unavailable in v1.25+",
            ),
            (
                "batch/v1beta1",
                "batch/v1beta1 CronJob is deprecated in v1.21+, unavailable in v1.25+; use batch/v1 CronJob",
            ),
            ("example.com/v1alpha1", "example.com/v1alpha1 Widget is deprecated"),
            (
                "example.com/v1alpha1",
                "example.com/v1alpha1 Widget is deprecated; use example.com/v1 Widget",
            ),
        ] {
            assert_eq!(deprecation(text, version).as_deref(), Some(text));
            assert_eq!(deprecation(text, "apps/v1"), None, "of another API: {text}");
        }
    }

    #[test]
    fn what_may_name_objects_is_not_kept() {
        for text in [
            "unknown field",
            "image of pod secret-project is deprecated",
            "v1 Pod secret-project is deprecated",
            "v1 secret-project is deprecated in v1.19+",
            "v1 Pod is deprecated for secret-project",
            "v1 Pod is deprecated; use secret-project Other",
            "v1 Pod is deprecated; ask secret-project",
            "v1 Pod is deprecated in secret-project",
            "the v1 Pod is deprecated in v1.19+",
        ] {
            assert_eq!(deprecation(text, "v1"), None, "{text}");
        }
        let more = "v1 Endpoints is deprecated in v1.33+, says secret-project";
        assert_eq!(
            deprecation(more, "v1").as_deref(),
            Some("v1 Endpoints is deprecated in v1.33+")
        );
        assert_eq!(deprecation_of("v1 Pod is deprecated", "v1"), None, "no header of this kind");
    }

    proptest! {
        #[test]
        fn nothing_but_the_known_parts_is_kept(
            text in "v1 [A-Z][a-z]{1,4} is deprecated( in v[0-9]{1,2}\\.[0-9]{1,2}\\+)?[;, a-z]{0,9}",
        ) {
            if let Some(kept) = deprecation(&text, "v1") {
                prop_assert!(text.starts_with(&kept) && kept.split(' ').count() <= 6, "{kept}");
            }
        }
    }
}
