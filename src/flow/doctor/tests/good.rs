//! Clients that do all right, and clients that only look bad: neither has a finding.

use super::world::{GO, LIST, PYTHON, Requests, WATCH, World, rules_found_for, with};
use crate::costs::Batch;
use crate::doctor::Rule;
use crate::habit::{AskedForm, Start};

/// Each kubelet is a user of its own, and reads ten resources. People use kubectl.
#[test]
fn kubelets_and_kubectl_do_not_displace_the_habits_of_programs() {
    let mut world = World::new();
    let agents = ["kubelet/v1.36.2 (linux/amd64)", "kubectl/v1.36.2 (linux/amd64)"];
    let poll = Requests { count: 10, ..LIST };
    for round in 0..3 {
        world.run(&[poll, Requests { agent: GO, count: 10, ..LIST }]);
        world.run(&[Requests { agent: GO, count: 1, ..WATCH }]);
        for number in 0..20_000_u64 {
            let user = format!("system:node:n{}", number / 20);
            let agent = agents[usize::from(number % 20 < 10)];
            let mut batch = Batch::default();
            let requests = Requests {
                agent,
                verb: if number.is_multiple_of(2) { "list" } else { "watch" },
                ..LIST
            };
            world.add_of(&mut batch, &user, &format!("resource{}", number % 10), &requests);
            world.costs.add(world.now, &mut batch);
        }
        assert!(world.costs.habits().heaviest().len() <= 3, "{round}");
    }
    world.run(&[poll]);
    assert_eq!(world.rules(), [Rule::PollList], "of the script alone");
    assert_eq!(world.costs.habits().replaced(), 0);
}

/// A controller of client-go, controller-runtime or kube-rs that does all right, in three replicas
/// of which one leads: at its start and for ten minutes.
#[test]
fn well_behaved_clients_have_no_finding() {
    let protobuf = with(|habit| habit.form = AskedForm::Protobuf);
    let paged = with(|habit| (habit.start, habit.is_limited) = (Start::Unset, true));
    let streamed = with(|habit| habit.start = Start::Unset);
    let resumed = with(|habit| habit.start = Start::Version);
    for (agent, first) in [(GO, protobuf), (PYTHON, paged), ("kube-rs-agent/1.0", streamed)] {
        for resource in ["pods", "deployments.apps", "widgets.example.com", "secrets"] {
            let of_client = |requests: Requests| Requests { agent, resource, ..requests };
            let list = of_client(Requests {
                habit: first,
                count: 3,
                bytes: 9e5,
                is_forwarded: true,
                ..LIST
            });
            let resumes = of_client(Requests { habit: resumed, count: 6, bytes: 1e6, ..WATCH });
            let lease = Requests { agent, resource: "leases", verb: "get", count: 900, ..LIST };
            let expired =
                Requests { sign: |signs| signs.expired_watches = 1.0, count: 3, ..resumes };
            assert_eq!(rules_found_for(&[list, resumes, lease, expired]), [], "{agent} {resource}");
        }
    }
}

#[test]
fn clients_that_only_look_bad_have_no_finding() {
    let from = with(|habit| habit.start = Start::Version);
    let unset = with(|habit| habit.start = Start::Unset);
    let kubectl = Requests { agent: "kubectl/v1.36.2 (linux/amd64) kubernetes/4f1e2d3", ..WATCH };
    let kubelet = Requests { agent: "kubelet/v1.36.2 (linux/amd64) kubernetes/4f1e2d3", ..WATCH };
    let short =
        |requests| Requests { count: 40, sign: |signs| signs.short_watches = 1.0, ..requests };
    let json = |requests| Requests { bytes: 2e7, ..requests };
    let relists = Requests { count: 24, ..LIST };
    let watches = Requests { habit: from, count: 24, ..WATCH };
    let expired = Requests { count: 12, sign: |signs| signs.expired_watches = 1.0, ..watches };
    let after = Requests { habit: unset, count: 12, is_forwarded: true, ..LIST };
    let only = with(|habit| habit.form = AskedForm::OnlyJson);
    for (what, requests) in [
        ("kubectl wait", vec![short(kubectl)]),
        ("kubectl get --output=yaml", vec![json(kubectl)]),
        ("kubectl apply in a loop", vec![Requests { verb: "list", count: 99, ..kubectl }]),
        ("kubelets", vec![short(kubelet), json(kubelet)]),
        ("twelve replicas that list once more", vec![relists, watches]),
        ("twelve replicas after a 410", vec![expired, after]),
        ("a dynamic client", vec![json(Requests { agent: GO, habit: only, ..WATCH })]),
        ("watches of one object", vec![Requests { habit: from, count: 99, ..WATCH }]),
    ] {
        assert_eq!(rules_found_for(&requests), [], "{what}");
    }
}
