use super::*;

fn sequences(events: &Events) -> Vec<u64> {
    events.iter().map(|event| event.sequence).collect()
}

#[test]
fn the_oldest_leaves_when_the_history_is_full() {
    let mut events = Events::new(3);
    for at in 0..5 {
        assert_eq!(events.push(What::Load, "detect:1", 10, at), at);
    }
    assert_eq!(sequences(&events), [2, 3, 4]);
    assert_eq!(Events::default().capacity, 256);
}

#[test]
fn a_storm_of_refusals_is_counted_and_drops_nothing_else() {
    let mut events = Events::new(3);
    events.push(What::Load, "segment:1", 300, 1);
    for at in 0..100 {
        events.push(What::Refuse, "detect:1", 50 + at % 7, 10 + at);
    }
    assert_eq!(sequences(&events), [0, 100]);
    let last = events.iter().last().unwrap();
    assert_eq!((last.times, last.bytes, last.at_ms, last.what.name()), (100, 56, 109, "refuse"));
}

#[test]
fn loads_of_one_model_are_each_listed() {
    let mut events = Events::new(8);
    events.push(What::Load, "detect:1", 10, 1);
    events.push(What::Load, "detect:1", 10, 2);
    events.push(What::Burst, "detect:1", 10, 3);
    events.push(What::Burst, "segment:1", 10, 4);
    assert_eq!(sequences(&events), [0, 1, 2, 3]);
}
