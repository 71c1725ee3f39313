//! The 401 for a wrong credential and the 403 for a request that is not allowed, with the messages
//! of the API server (`docs/semantics.md` §12.1, §12.3).
//!
//! Both equal the upstream's responses byte for byte, in JSON and in protobuf. The header
//! `X-Content-Type-Options: nosniff` of a 403 is added where the response is built. Strings of the
//! request are quoted as by Go's `%q`. The first part of the message (user, verb, resource, path,
//! namespace) is then HTML-escaped; the name of the object and the reason are not.

use crate::api::status::{Status, StatusDetails};
use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::user::User;

/// Returns the API server's 401 (`docs/semantics.md` §12.1).
pub fn unauthorized() -> Status {
    Status {
        code: http::StatusCode::UNAUTHORIZED,
        reason: "Unauthorized",
        message: "Unauthorized".to_owned(),
        details: None,
        retry_after_seconds: None,
    }
}

/// Returns the API server's 403. `reason` is that of the access review.
pub fn forbidden(user: &User, attributes: &Attributes, reason: &str) -> Status {
    let mut message = match attributes {
        Attributes::NonResource(_) => "forbidden: ".to_owned(),
        Attributes::Resource(resource) => subject(resource),
    };
    push_html_escaped(&mut message, &denied_action(user, attributes));
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    let details = match attributes {
        Attributes::NonResource(_) => StatusDetails::default(),
        Attributes::Resource(resource) => StatusDetails {
            name: resource.name.to_string(),
            group: resource.gvr.group.to_string(),
            kind: resource.gvr.resource.to_string(),
        },
    };
    Status {
        code: http::StatusCode::FORBIDDEN,
        reason: "Forbidden",
        message,
        details: Some(Box::new(details)),
        retry_after_seconds: None,
    }
}

/// Returns the start of the message, such as `deployments.apps "x" is forbidden: `.
fn subject(resource: &ResourceAttributes) -> String {
    let mut subject = resource.gvr.resource.to_string();
    if !resource.gvr.group.is_empty() {
        subject.push('.');
        subject.push_str(&resource.gvr.group);
    }
    if subject.is_empty() {
        return "forbidden: ".to_owned();
    }
    if !resource.name.is_empty() {
        subject.push(' ');
        push_quoted(&mut subject, &resource.name);
    }
    subject.push_str(" is forbidden: ");
    subject
}

/// Returns what the user may not do, such as `User "alice" cannot get path "/version"`.
fn denied_action(user: &User, attributes: &Attributes) -> String {
    let mut text = "User ".to_owned();
    push_quoted(&mut text, &user.name);
    text.push_str(" cannot ");
    text.push_str(attributes.verb());
    match attributes {
        Attributes::NonResource(attributes) => {
            text.push_str(" path ");
            push_quoted(&mut text, &attributes.path);
        }
        Attributes::Resource(resource) => {
            text.push_str(" resource ");
            let plural = &*resource.gvr.resource;
            match resource.subresource.as_str() {
                "" => push_quoted(&mut text, plural),
                subresource => push_quoted(&mut text, &format!("{plural}/{subresource}")),
            }
            text.push_str(" in API group ");
            push_quoted(&mut text, &resource.gvr.group);
            if resource.namespace.is_empty() {
                text.push_str(" at the cluster scope");
            } else {
                text.push_str(" in the namespace ");
                push_quoted(&mut text, &resource.namespace);
            }
        }
    }
    text
}

/// Appends a string with `&`, `<` and `>` escaped.
fn push_html_escaped(message: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => message.push_str("&amp;"),
            '<' => message.push_str("&lt;"),
            '>' => message.push_str("&gt;"),
            other => message.push(other),
        }
    }
}

/// Appends a string quoted as by Go's `strconv.Quote`.
fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            printable if is_printable(printable) => out.push(printable),
            other => out.push_str(&match u32::from(other) {
                code @ (0..0x20 | 0x7f) => format!("\\x{code:02x}"),
                code @ ..0x1_0000 => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            }),
        }
    }
    out.push('"');
}

/// Returns whether a character is printable by Go's `strconv.IsPrint`: letters, marks, numbers,
/// punctuation, symbols and the ASCII space. Rust's `escape_debug` leaves the same characters
/// unescaped, except for marks at the start of a string. So the character is put after a letter
/// here.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    let mut buffer = [b'a', 0, 0, 0, 0];
    let [_, rest @ ..] = &mut buffer;
    let length = character.encode_utf8(rest).len();
    let text = buffer.get(..=length).and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.is_some_and(|text| text.escape_debug().nth(1) == Some(character))
}

#[cfg(test)]
mod tests;
