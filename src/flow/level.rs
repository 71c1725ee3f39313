//! PriorityLevelConfigurations of `flowcontrol.apiserver.k8s.io/v1`, parsed and validated.
//!
//! The checks are those of kube-apiserver (`pkg/apis/flowcontrol/validation/validation.go`).

use std::sync::Arc;

use serde::Deserialize;

use crate::object::{InvalidObject, ObjectId, RawObject, check};
use crate::schedule::request::Manner;
use crate::schedule::share::LevelShare;
use crate::schema::EXEMPT;

/// A priority level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityLevel {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid; empty if it is built in.
    pub uid: Arc<str>,
    /// `nominalConcurrencyShares`.
    pub shares: u32,
    /// `lendablePercent`.
    pub lendable_percent: u32,
    /// `borrowingLimitPercent`; `None` for no limit.
    pub borrowing_percent: Option<u32>,
    /// Whether it is of the type `Exempt`.
    pub is_exempt: bool,
    /// Its queues; `None` for a level without.
    pub queuing: Option<Queuing>,
}

/// The queues of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queuing {
    /// The number of queues.
    pub queues: u32,
    /// The number of queues that one flow may use.
    pub hand_size: u32,
    /// Requests that wait in one queue.
    pub length_max: u32,
}

impl PriorityLevel {
    /// Parses and validates an object in JSON.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidObject> {
        let (id, spec) = RawObject::<RawSpec>::parse(json)?;
        let name = &id.name;
        let is_exempt = &*spec.kind == "Exempt";
        let field = "spec.type";
        check(is_exempt || &*spec.kind == "Limited", field, "is neither Exempt nor Limited")?;
        check(is_exempt == (&**name == EXEMPT), field, "is Exempt only for the level \"exempt\"")?;
        match (spec.exempt, spec.limited) {
            (exempt, None) if is_exempt => {
                exempt.unwrap_or_default().level(id, "spec.exempt", 0, None)
            }
            (None, Some(RawLimited { lending, limit_response })) if !is_exempt => {
                let queuing = limit_response.queuing()?;
                lending.level(id, "spec.limited", SHARES_DEFAULT, queuing)
            }
            _ => {
                check(false, "spec", "has not exactly the part of its type")?;
                RawLending::default().level(id, "spec", 0, None)
            }
        }
    }

    /// Returns its part of all seats.
    pub fn share(&self) -> LevelShare {
        let Self { shares, lendable_percent, borrowing_percent, .. } = *self;
        LevelShare::Shares { shares, lendable_percent, borrowing_percent }
    }

    /// Returns its treatment of requests that find no seats. A flow may fill a hand of queues.
    pub fn manner(&self) -> Manner {
        match self.queuing {
            _ if self.is_exempt => Manner::Exempt,
            None => Manner::Reject,
            Some(Queuing { queues, hand_size, length_max }) => {
                let product = |one: u32, two: u32| (one as usize).saturating_mul(two as usize);
                Manner::Queue {
                    flow_max: product(hand_size, length_max),
                    level_max: product(queues, length_max),
                }
            }
        }
    }
}

#[derive(Deserialize)]
struct RawSpec {
    #[serde(default, rename = "type")]
    kind: Box<str>,
    exempt: Option<RawLending>,
    limited: Option<RawLimited>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLending {
    nominal_concurrency_shares: Option<i32>,
    lendable_percent: Option<i32>,
    borrowing_limit_percent: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLimited {
    #[serde(flatten)]
    lending: RawLending,
    limit_response: RawLimitResponse,
}

#[derive(Deserialize)]
struct RawLimitResponse {
    #[serde(default, rename = "type")]
    kind: Box<str>,
    queuing: Option<RawQueuing>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawQueuing {
    #[serde(default)]
    queues: i64,
    #[serde(default)]
    hand_size: i64,
    #[serde(default)]
    queue_length_limit: i64,
}

impl RawLending {
    fn level(
        self,
        ObjectId { name, uid }: ObjectId,
        field: &'static str,
        shares: u32,
        queuing: Option<Queuing>,
    ) -> Result<PriorityLevel, InvalidObject> {
        let lendable = self.lendable_percent.unwrap_or(0);
        check((0..=100).contains(&lendable), field, "has a lendablePercent beyond 0 to 100")?;
        let borrowing = self.borrowing_limit_percent.unwrap_or(0);
        check(borrowing >= 0, field, "has a negative borrowingLimitPercent")?;
        let given_shares = self.nominal_concurrency_shares;
        check(given_shares.is_none_or(|shares| shares >= 0), field, "has negative shares")?;
        Ok(PriorityLevel {
            is_exempt: &*name == EXEMPT,
            name,
            uid,
            shares: given_shares.map_or(shares, i32::unsigned_abs),
            lendable_percent: lendable.unsigned_abs(),
            borrowing_percent: self.borrowing_limit_percent.map(i32::unsigned_abs),
            queuing,
        })
    }
}

impl RawLimitResponse {
    fn queuing(self) -> Result<Option<Queuing>, InvalidObject> {
        let field = "spec.limited.limitResponse";
        match (&*self.kind, self.queuing) {
            ("Reject", None) => Ok(None),
            ("Queue", Some(queuing)) => queuing.checked().map(Some),
            _ => check(false, field, "is neither Reject nor Queue with its numbers").map(|()| None),
        }
    }
}

impl RawQueuing {
    fn checked(&self) -> Result<Queuing, InvalidObject> {
        let field = "spec.limited.limitResponse.queuing";
        let or = |value: i64, default| if value == 0 { default } else { value };
        let (queues, hand) = (or(self.queues, QUEUES_DEFAULT), or(self.hand_size, HAND_DEFAULT));
        let length = or(self.queue_length_limit, LENGTH_DEFAULT);
        check(self.queue_length_limit >= 0, field, "has a negative queueLengthLimit")?;
        check((1..=QUEUES_MAX).contains(&queues), field, "has queues beyond 1 to 10000000")?;
        check((1..=queues).contains(&hand), field, "has a handSize beyond 1 to queues")?;
        // `shufflesharding.RequiredEntropyBits`: a hash of 60 bits must suffice for the hand.
        let bits = i64::from(i64::BITS - (queues - 1).leading_zeros());
        check(bits * hand <= HASH_BITS, field, "has a handSize that is too large for its queues")?;
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Queuing { queues: number(queues), hand_size: number(hand), length_max: number(length) })
    }
}

const SHARES_DEFAULT: u32 = 30;
const QUEUES_DEFAULT: i64 = 64;
const HAND_DEFAULT: i64 = 8;
const LENGTH_DEFAULT: i64 = 50;
const QUEUES_MAX: i64 = 10_000_000;
const HASH_BITS: i64 = 60;
