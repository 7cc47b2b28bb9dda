//! Names and owners that databases like to confuse.

use lease_core::{LossReason, OwnerId};

use crate::{
    Harness,
    kit::{extend, grant, long, loss, name, owner, refusal, release},
};

/// Families of ids that some collation, some parser or some client has taken for one another.
const FAMILIES: &[&[&str]] = &[
    // Case, in several alphabets; `İ` and `ı` under a Turkish collation.
    &["Job", "job", "JOB"],
    &["I", "i", "\u{130}", "\u{131}"],
    &["\u{3c3}", "\u{3c2}", "\u{3a3}"],
    // Letters that expand or that fold.
    &["stra\u{df}e", "strasse", "STRASSE", "stra\u{1e9e}e"],
    &["\u{fb01}le", "file"],
    &["\u{c6}on", "AEon", "\u{e6}on"],
    // Accents: one code point, two, or none; combining marks at the end; canonical equivalents.
    &["caf\u{e9}", "cafe\u{301}", "cafe", "cafe\u{301}\u{301}"],
    &["a", "a\u{301}", "a\u{308}", "a\u{34f}"],
    &["\u{212b}", "\u{c5}", "A\u{30a}"],
    // Width and kana.
    &["job1", "\u{ff4a}\u{ff4f}\u{ff42}1", "job\u{ff11}", "job\u{b9}"],
    &["\u{304b}", "\u{30ab}", "\u{ff76}"],
    // Code points that show nothing.
    &["ab", "a\u{200b}b", "a\u{200d}b", "a\u{feff}b", "a\u{ad}b", "ab\u{200b}", "\u{200b}ab"],
    // White space and hyphens inside.
    &["a b", "a  b", "a\u{a0}b", "a\u{3000}b", "a\u{2009}b"],
    &["co-op", "coop", "co\u{2010}op", "co_op", "co%op", "co?op", "co*op"],
    // Beyond the basic plane, where old collations give every character the same weight.
    &["\u{1f600}", "\u{1f601}", "\u{1f469}\u{200d}\u{1f4bb}", "\u{1f469}\u{1f4bb}", "\u{fffd}", "?", "??"],
    &["\u{e000}", "\u{ffff}", "\u{10ffff}"],
    // What a careless statement would read as code.
    &["'; drop table singleton_leases; --", "' or '1'='1", "''", "'", "\"", "\\", "\\'", "`", "[x]", "x"],
    &["$1", "?1", ":name", "@p1", "{name}", "%s", "%", "NULL", "null", "0", "00", "0x0"],
    // What a careless type would read as a number.
    &["1", "1.0", "01", "+1", "1e0"],
];

/// Ids of 255 UTF-16 units, the most that is allowed, and shorter ones that only the end tells apart.
fn longest() -> Vec<String> {
    let ascii = "a".repeat(254);
    let astral = "\u{1f600}".repeat(127);
    vec![
        format!("{ascii}a"),
        format!("{ascii}b"),
        ascii,
        format!("{astral}a"),
        format!("{astral}b"),
        astral,
        "\u{20ac}".repeat(255),
    ]
}

fn families() -> Vec<Vec<String>> {
    let mut families: Vec<Vec<String>> =
        FAMILIES.iter().map(|family| family.iter().map(ToString::to_string).collect()).collect();
    families.push(longest());
    families
}

/// S9, NE-02, NE-03: every name of every family is a lease of its own, all at the same time.
pub async fn confusable_names_never_meet(harness: &impl Harness) {
    let store = harness.store().await;
    let mut held = Vec::new();
    for (number, id) in families().concat().iter().enumerate() {
        let holder = owner(&format!("owner-{number}"));
        let token = grant(&store, &name(id), &holder, long()).await.value;
        held.push((name(id), holder, token));
    }
    let stranger = owner("stranger");
    for (name, holder, token) in &held {
        assert_eq!(refusal(&store, name, &stranger).await.value.owner.as_ref(), Some(holder), "{name:?}");
        assert_eq!(extend(&store, name, holder, long()).await.value.token, *token, "{name:?}");
    }
    for (name, holder, _) in &held {
        release(&store, name, holder, true).await;
    }
}

/// S9, NE-02, NE-03: while one owner of a family has a lease, the others are refused it.
pub async fn confusable_owners_are_refused(harness: &impl Harness) {
    let store = harness.store().await;
    let job = name("job");
    for family in families() {
        for id in &family {
            let holder = owner(id);
            grant(&store, &job, &holder, long()).await;
            for other in others(&family, &holder) {
                assert_eq!(refusal(&store, &job, &other).await.value.owner.as_ref(), Some(&holder), "{other:?}");
            }
            release(&store, &job, &holder, true).await;
        }
    }
}

/// S9, NE-03: nor can they renew or release it.
pub async fn confusable_owners_cannot_renew_or_release(harness: &impl Harness) {
    let store = harness.store().await;
    for (number, family) in families().iter().enumerate() {
        let (job, holder) = (name(&format!("job-{number}")), owner(&family[0]));
        let granted = grant(&store, &job, &holder, long()).await;
        for other in others(family, &holder) {
            assert_eq!(loss(&store, &job, &other).await, LossReason::TakenOver(holder.clone()), "{other:?}");
            release(&store, &job, &other, false).await;
        }
        assert_eq!(extend(&store, &job, &holder, long()).await.value.token, granted.value);
    }
}

/// S9, NE-08: an owner comes back code point by code point.
pub async fn owner_comes_back_exactly(harness: &impl Harness) {
    let (store, replica) = (harness.store().await, harness.store().await);
    let stranger = owner("stranger");
    for (number, id) in families().concat().iter().enumerate() {
        let job = name(&format!("job-{number}"));
        grant(&store, &job, &owner(id), long()).await;
        let told = refusal(&replica, &job, &stranger).await.value.owner.expect("a held lease has an owner");
        assert_eq!(told.as_ref(), id);
    }
}

fn others<'a>(family: &'a [String], holder: &'a OwnerId) -> impl Iterator<Item = OwnerId> + Send + 'a {
    family.iter().map(|id| owner(id)).filter(move |other| other != holder)
}
