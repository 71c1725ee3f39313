//! Which form of a z-page a client accepts (KEP-4827, KEP-4828). Text is the default. Structured
//! JSON must be asked for by its kind, group and version: plain `application/json` is refused, so
//! that nobody depends on a form that may change.

use http::HeaderMap;
use http::header::ACCEPT;

/// The form of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Text for people.
    Text,
    /// JSON of this API version.
    Json(&'static str),
}

/// Returns the form of a page of this kind that the client prefers; `None` if it accepts none.
pub(super) fn negotiate(headers: &HeaderMap, kind: &str) -> Option<Form> {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges = values.flat_map(|value| value.split(',')).map(str::trim);
    let ranges: Vec<_> = ranges.filter(|range| !range.is_empty()).take(RANGES_MAX).collect();
    if ranges.is_empty() {
        return Some(Form::Text);
    }
    let forms = ranges.iter().filter_map(|range| form(range, kind));
    // The first of those with the highest weight.
    forms.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(form, _)| form)
}

/// Returns the form that a media range names, and its weight in thousandths.
fn form(range: &str, kind: &str) -> Option<(Form, u32)> {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next()?.to_ascii_lowercase();
    let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
    let parameter = |name: &str| {
        let parameter = parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        parameter.map(|(_, value)| value.trim_matches('"'))
    };
    let weight = match parameter("q") {
        None => 1000,
        Some(weight) => (weight.parse::<f64>().ok()?.clamp(0.0, 1.0) * 1000.0) as u32,
    };
    let form = match name.as_str() {
        "text/plain" | "text/*" | "*/*" => Form::Text,
        "application/json" => {
            let version = parameter("v")?;
            let is_kind = parameter("as") == Some(kind) && parameter("g") == Some(GROUP);
            let version_form = VERSIONS.iter().find(|(short, _)| *short == version);
            Form::Json(version_form.filter(|_| is_kind)?.1)
        }
        _ => return None,
    };
    (weight > 0).then_some((form, weight))
}

const GROUP: &str = "config.k8s.io";
/// The older one is deprecated and the same.
const VERSIONS: [(&str, &str); 2] =
    [("v1beta1", "config.k8s.io/v1beta1"), ("v1alpha1", "config.k8s.io/v1alpha1")];
/// More than any client sends.
const RANGES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    #[test]
    fn text_is_the_default_and_json_must_be_named() {
        const BETA: Option<Form> = Some(Form::Json("config.k8s.io/v1beta1"));
        const ALPHA: Option<Form> = Some(Form::Json("config.k8s.io/v1alpha1"));
        const TEXT: Option<Form> = Some(Form::Text);
        assert_eq!(negotiate(&HeaderMap::new(), "Statusz"), TEXT);
        for (accept, expected) in [
            ("", TEXT),
            ("*/*", TEXT),
            ("text/plain; charset=utf-8", TEXT),
            ("text/html,application/xhtml+xml,*/*;q=0.8", TEXT),
            ("application/json;as=Statusz;v=v1beta1;g=config.k8s.io", BETA),
            ("Application/JSON; v=\"v1beta1\"; g=config.k8s.io; as=Statusz", BETA),
            ("application/json;as=Statusz;v=v1alpha1;g=config.k8s.io", ALPHA),
            ("text/plain,application/json;as=Statusz;v=v1beta1;g=config.k8s.io", TEXT),
            ("text/plain;q=0.5,application/json;as=Statusz;v=v1beta1;g=config.k8s.io", BETA),
            ("application/json;as=Statusz;v=v1beta1;g=config.k8s.io;q=0,*/*;q=0.1", TEXT),
            ("application/json", None),
            ("application/json;as=Statusz;v=v1beta1", None),
            ("application/json;as=Flagz;v=v1beta1;g=config.k8s.io", None),
            ("application/json;as=Statusz;v=v1;g=config.k8s.io", None),
            ("application/json;as=Statusz;v=v1beta1;g=apps", None),
            ("application/yaml", None),
            ("text/plain;q=0", None),
            ("text/plain;q=x", None),
        ] {
            assert_eq!(negotiate(&headers(&[("accept", accept)]), "Statusz"), expected, "{accept}");
        }
    }
}
