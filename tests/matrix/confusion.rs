//! A user who may read `configmaps/x` never gets `secrets/x`, in any spelling of the path: no
//! response contains the canary of the Secrets, and each equals the upstream's own.

use std::time::Duration;

use base64::Engine;

use super::grants::secret;
use super::users::{User, users};
use super::world::World;
use crate::suite::allowed::{compared, same_but_for_progress};
use crate::suite::wire::{Answer, Call};

/// Sends all paths as each user who may read no Secret.
pub(crate) async fn paths(world: &World) {
    paths_of(world, &WHO).await;
}

/// Sends all paths as these users.
pub(crate) async fn paths_of(world: &World, who: &[&str]) {
    let canary = Canary::new(&world.tokens.canary);
    let users_of_world = users(world);
    let asked = users_of_world.iter().filter(|user| who.contains(&user.name));
    let asked = asked.map(|user| wrongs(world, user, &canary));
    let wrong: Vec<Vec<String>> = futures::future::join_all(asked).await;
    eprintln!("{} confusing requests by {} each", calls().len(), wrong.len());
    assert_eq!(wrong.len(), who.len());
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    reaches(world, &canary).await;
}

/// Sends all paths as one user.
async fn wrongs(world: &World, user: &User, canary: &Canary) -> Vec<String> {
    let mut wrong = Vec::new();
    let sides = world.sides(user);
    let (mut through, mut direct) = (sides.through.connection(), sides.direct.connection());
    for mut call in calls() {
        call.headers.extend(user.headers.iter().cloned());
        for attempt in 0..TRIES {
            let (seen, expected) = tokio::join!(through.send(&call), direct.send(&call));
            assert!(!canary.is_in(&expected), "{} may read a Secret: {call}", user.name);
            if canary.is_in(&seen) {
                wrong.push(format!("{}: A SECRET IS REVEALED: {call}\n  {seen:?}", user.name));
                break;
            }
            let (seen, expected) = (compared(&seen), compared(&expected));
            if seen == expected || same_but_for_progress(&call, &seen, &expected) {
                break;
            }
            if attempt + 1 == TRIES {
                wrong.push(format!(
                    "{}: {call}\n  weir     {seen:?}\n  upstream {expected:?}",
                    user.name
                ));
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
    wrong
}

/// Checks that the canary would be found in a response.
async fn reaches(world: &World, canary: &Canary) {
    let users_of_world = users(world);
    let reader: &User =
        users_of_world.iter().find(|user| user.secrets && user.name == "sven").unwrap();
    let sides = world.sides(reader);
    for accept in ["application/json", "application/vnd.kubernetes.protobuf"] {
        let call =
            Call::get("/api/v1/namespaces/a/secrets/x?resourceVersion=0").header("accept", accept);
        assert!(
            canary.is_in(&sides.through.send(&call).await),
            "{call} tells its reader the secret"
        );
    }
}

/// Texts that no response may contain: the value, and its form in JSON.
struct Canary([String; 2]);

impl Canary {
    fn new(canary: &str) -> Self {
        let secret = secret(canary);
        Self([base64::engine::general_purpose::STANDARD.encode(&secret), secret])
    }

    fn is_in(&self, answer: &Answer) -> bool {
        let body = compared(answer).body;
        let headers = format!("{:?}", answer.headers);
        self.0.iter().any(|text| {
            memchr::memmem::find(&body, text.as_bytes()).is_some()
                || headers.contains(text.as_str())
        })
    }
}

fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for path in PATHS {
        let separator = if path.contains('?') { '&' } else { '?' };
        for query in ["", "resourceVersion=0", "resourceVersion=0&watch=1&timeoutSeconds=1"] {
            let path = if query.is_empty() {
                (*path).to_owned()
            } else {
                format!("{path}{separator}{query}")
            };
            // A path that no request line can contain cannot confuse a server.
            if path.parse::<http::Uri>().is_ok() {
                calls.push(Call::get(path));
            }
        }
    }
    let allowed = "/api/v1/namespaces/a/configmaps/x?resourceVersion=0";
    let wanted = "/api/v1/namespaces/a/secrets/x";
    for name in [
        "x-original-url",
        "x-rewrite-url",
        "x-forwarded-uri",
        "x-original-uri",
        "x-envoy-original-path",
        "x-forwarded-prefix",
        "referer",
        "content-location",
    ] {
        calls.push(Call::get(allowed).header(name, wanted));
    }
    for (name, value) in [
        ("x-http-method-override", "DELETE"),
        ("range", "bytes=0-10"),
        ("if-none-match", "*"),
        ("te", "trailers"),
    ] {
        calls.push(Call::get(allowed).header(name, value));
        calls.push(Call::get(format!("{wanted}?resourceVersion=0")).header(name, value));
    }
    calls
}

/// One user of each kind of permission.
const WHO: [&str; 8] = [
    "tom",
    "nina",
    "noah",
    "gus",
    "dev certificate",
    "service account",
    "nobody",
    "asserted by a front proxy",
];

const PATHS: &[&str] = &[
    "/api/v1/namespaces/a/secrets/x",
    "/api/v1/namespaces/a/secrets",
    "/api/v1/secrets",
    "/api/v1/namespaces/a//secrets/x",
    "/api/v1/namespaces//a/secrets/x",
    "/api/v1/namespaces//secrets/x",
    "/api/v1/namespaces//secrets",
    "/api/v1//namespaces/a/secrets/x",
    "/api//v1/namespaces/a/secrets/x",
    "//api/v1/namespaces/a/secrets/x",
    "/api/v1/namespaces/a/secrets//x",
    "/api/v1/namespaces/a/secrets/x/",
    "/api/v1/namespaces/a/secrets/x//",
    "/api/v1/namespaces/a/secrets/",
    "/api/v1/namespaces/a/configmaps/../secrets/x",
    "/api/v1/namespaces/a/configmaps/x/../../secrets/x",
    "/api/v1/namespaces/b/../a/secrets/x",
    "/api/v1/namespaces/a/./secrets/x",
    "/api/v1/namespaces/a/secrets/./x",
    "/api/v1/../v1/namespaces/a/secrets/x",
    "/version/../api/v1/namespaces/a/secrets/x",
    "/healthz/../api/v1/secrets",
    "/openapi/v2/../../api/v1/secrets",
    "/apis/../api/v1/secrets",
    "/api/v1/namespaces/a/configmaps/%2e%2e/secrets/x",
    "/api/v1/namespaces/a/configmaps/.%2e/secrets/x",
    "/api/v1/namespaces/a/%2e/secrets/x",
    "/api/v1/namespaces/a/configmaps/%252e%252e/secrets/x",
    "/api/v1/namespaces/a/configmaps/..%2fsecrets%2fx",
    "/api/v1/namespaces/a/configmaps/x%2f..%2f..%2fsecrets%2fx",
    "/api/v1/namespaces/a/configmaps%2f..%2fsecrets%2fx",
    "/api/v1/namespaces/a/secrets%2fx",
    "/api/v1/namespaces/a/secrets%2Fx",
    "/api/v1/namespaces/a%2fsecrets%2fx",
    "/api/v1/namespaces/a%2fsecrets/x",
    "/api/v1/namespaces%2fa%2fsecrets%2fx",
    "/api/v1%2fnamespaces/a/secrets/x",
    "/api%2fv1/namespaces/a/secrets/x",
    "/%61pi/v1/namespaces/a/secrets/x",
    "/api/v1/namespaces/%61/secrets/x",
    "/api/v1/namespaces/a/secret%73/x",
    "/api/v1/namespaces/a/%73ecrets/%78",
    "/api/v1/namespaces/a/secrets/%78",
    "/api/v1/namespaces/a/secrets%00/x",
    "/api/v1/namespaces/a/secrets/x%00",
    "/api/v1/namespaces/a/secrets/x%20",
    "/api/v1/namespaces/a/secrets/x%0a",
    "/api/v1/namespaces/a/secrets%3f/x",
    "/api/v1/namespaces/a/secrets/x%3fconfigmaps",
    "/api/v1/namespaces/a/secrets/x%23",
    "/api/v1/namespaces/a/configmaps/x%00/../secrets/x",
    "/api/v1/namespaces/a/configmaps%5c..%5csecrets/x",
    "/api/v1/namespaces/a/configmaps/..\\secrets\\x",
    "/api/v1/namespaces/a/secrets/x;configmaps",
    "/api/v1/namespaces/a/secrets;configmaps/x",
    "/api/v1/namespaces/a/;configmaps/secrets/x",
    "/api/v1/namespaces/a/configmaps;/../secrets/x",
    "/api/v1/namespaces/a/configmaps/x;/../../secrets/x",
    "/api/v1/namespaces/a/configmaps/..;/secrets/x",
    "/api/v1;x/namespaces/a/secrets/x",
    "/api/v1/namespaces/a/Secrets/x",
    "/api/v1/namespaces/a/SECRETS/x",
    "/api/v1/namespaces/a/secrets/X",
    "/api/v1/Namespaces/a/secrets/x",
    "/api/V1/namespaces/a/secrets/x",
    "/API/v1/namespaces/a/secrets/x",
    "/api/v1/namespaces/a/secret/x",
    "/api/v1/namespaces/a/configmaps/x/secrets/x",
    "/api/v1/namespaces/a/configmaps/secrets/x",
    "/api/v1/namespaces/a/secrets/x/configmaps",
    "/api/v1/namespaces/a/secrets/x/status",
    "/api/v1/namespaces/a/secrets/x/log",
    "/api/v1/namespaces/a/status/secrets/x",
    "/api/v1/namespaces/a/finalize/secrets/x",
    "/api/v1/namespaces/namespaces/a/secrets/x",
    "/api/v1/namespaces/a/namespaces/a/secrets/x",
    "/api/v1/namespaces/secrets/secrets/x",
    "/api/v1/configmaps/namespaces/a/secrets/x",
    "/api/v1/secrets/x",
    "/api/v1/a/secrets/x",
    "/apis/v1/namespaces/a/secrets/x",
    "/apis//v1/namespaces/a/secrets/x",
    "/apis/core/v1/namespaces/a/secrets/x",
    "/apis/%20/v1/namespaces/a/secrets/x",
    "/apis/apps/v1/namespaces/a/secrets/x",
    "/apis/example.com/v1/namespaces/a/secrets/x",
    "/api/v1/watch/namespaces/a/secrets/x?timeoutSeconds=1",
    "/api/v1/watch/namespaces/a/secrets?timeoutSeconds=1",
    "/api/v1/watch/secrets?timeoutSeconds=1",
    "/api/v1/watch/watch/secrets?timeoutSeconds=1",
    "/api/v1/namespaces/a/watch/secrets/x?timeoutSeconds=1",
    "/api/v1/watch/namespaces/a/configmaps/../secrets/x?timeoutSeconds=1",
    "/api/v1/watch//secrets?timeoutSeconds=1",
    "/api/v1/proxy/namespaces/a/secrets/x",
    "/api/v1/proxy/secrets",
    "/api/v1/redirect/namespaces/a/secrets/x",
    "/api/v1/namespaces/a/pods/x/proxy/../../../secrets/x",
    "/api/v1/namespaces/a/services/x/proxy/..%2f..%2f..%2fsecrets%2fx",
    "/api/v1/nodes/x/proxy/../../../namespaces/a/secrets/x",
    "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Dx",
    "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name=x",
    "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3D%3Dx",
    "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name!%3Dy",
    "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Dx,metadata.name%3Dy",
    "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Dy&fieldSelector=metadata.name%3Dx",
    "/api/v1/namespaces/a/secrets?labelSelector=app%3Dx",
    "/api/v1/secrets?fieldSelector=metadata.name%3Dx,metadata.namespace%3Da",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dx,metadata.namespace%3Da",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dx%2Cmetadata.name%3Dy",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dx,metadata.name!%3Dx",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dx%5C,y",
    "/api/v1/configmaps?fieldSelector=metadata.name%3D..%2Fsecrets%2Fx",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dx&fieldSelector=",
    "/api/v1/configmaps?fieldSelector=&fieldSelector=metadata.name%3Dx",
    "/api/v1/configmaps?FieldSelector=metadata.name%3Dx",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dx;y",
    "/api/v1/configmaps?x;fieldSelector=metadata.name%3Dx",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dx&limit=z",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dx&labelSelector=(",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dx&fieldSelector=metadata.name%3Dy",
    "/api/v1/configmaps?fieldSelector=metadata.name%3Dx,data.k%3Dy",
    "/api/v1/configmaps?fieldSelector=metadata%2Ename%3Dx",
    "/api/v1/configmaps?fieldSelector=metadata.name%3D%78",
    "/api/v1/configmaps?%66ieldSelector=metadata.name%3Dx",
    "/api/v1/configmaps?fieldSelector=+metadata.name%3Dx",
    "/api/v1/namespaces/a/configmaps/x?fieldSelector=metadata.name%3Dy",
    "/api/v1/namespaces/a/configmaps/y?fieldSelector=metadata.name%3Dx",
    "/api/v1/namespaces/a/configmaps?fieldSelector=metadata.namespace%3Db",
    "/api/v1/namespaces/a/configmaps/x?path=/api/v1/namespaces/a/secrets/x",
    "/api/v1/namespaces/a/configmaps/x?/../../secrets/x",
    "/api/v1/namespaces/a/configmaps/x?resource=secrets&namespace=a&name=x",
    "/api/v1/namespaces/a/secrets/x?configmaps/x",
    "/api/v1/namespaces/a/secrets/x?watch=1",
    "/api/v1/namespaces/a/secrets/x?as=PartialObjectMetadata",
    "/api/v1/namespaces/a/secrets/x?impersonate-user=admin",
    "/api/v1/namespaces/a/secrets/x?access_token=x",
];

const TRIES: usize = 4;
const RETRY_DELAY: Duration = Duration::from_millis(100);
