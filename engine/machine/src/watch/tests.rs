use super::*;
use EventKind::{NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted};
use WatchKind::{Child, Data, Persistent, PersistentRecursive};

fn table() -> WatchTable {
    WatchTable::new(1_000_000, usize::MAX, 42)
}

fn fired(table: &mut WatchTable, kind: EventKind, path: &str) -> Vec<u64> {
    let mut told = Vec::new();
    table.fire(kind, path, &mut |conn| told.push(conn.0));
    told
}

const EVERY_KIND: [WatchKind; 4] = [Data, Child, Persistent, PersistentRecursive];
const EVERY_EVENT: [EventKind; 4] = [NodeCreated, NodeDeleted, NodeDataChanged, NodeChildrenChanged];

/// A registration, and the events that it must get.
type Cell<'a> = (WatchKind, &'a str, &'a [(EventKind, &'a str)]);

/// One row of surface 5.3: the events per registration when /p/n changes.
///
/// Also checks that a one-shot watch is used up and that the others stay.
fn row(operation: &[(EventKind, &str)], cells: [Cell<'_>; 10]) {
    for (kind, on, expected) in cells {
        let mut table = table();
        table.add(ConnId(1), on, kind).unwrap();
        let mut events = Vec::new();
        for &(event, path) in operation {
            table.fire(event, path, &mut |_| events.push((event, path)));
        }
        assert_eq!(events, expected, "{kind:?} on {on}");
        let one_shot = matches!(kind, Data | Child);
        assert_eq!(table.watches() == 0, one_shot && !expected.is_empty(), "{kind:?} on {on}");
        // A second time, one-shot watches stay silent and the others fire again.
        let again: Vec<_> = operation.iter().flat_map(|&(event, path)| fired(&mut table, event, path)).collect();
        assert_eq!(again.len(), if one_shot { 0 } else { expected.len() }, "{kind:?} on {on}");
    }
}

#[test]
fn create_fires_the_watches_of_surface_table_5_3() {
    row(
        &[(NodeCreated, "/p/n"), (NodeChildrenChanged, "/p")],
        [
            (Data, "/p/n", &[(NodeCreated, "/p/n")]),
            (Child, "/p/n", &[]),
            (Child, "/p", &[(NodeChildrenChanged, "/p")]),
            (Data, "/p", &[]),
            (Persistent, "/p/n", &[(NodeCreated, "/p/n")]),
            (Persistent, "/p", &[(NodeChildrenChanged, "/p")]),
            (PersistentRecursive, "/p/n", &[(NodeCreated, "/p/n")]),
            (PersistentRecursive, "/p", &[(NodeCreated, "/p/n")]),
            (PersistentRecursive, "/", &[(NodeCreated, "/p/n")]),
            (PersistentRecursive, "/p/n/below", &[]),
        ],
    );
}

#[test]
fn set_data_fires_the_watches_of_surface_table_5_3() {
    row(
        &[(NodeDataChanged, "/p/n")],
        [
            (Data, "/p/n", &[(NodeDataChanged, "/p/n")]),
            (Child, "/p/n", &[]),
            (Child, "/p", &[]),
            (Data, "/p", &[]),
            (Persistent, "/p/n", &[(NodeDataChanged, "/p/n")]),
            (Persistent, "/p", &[]),
            (PersistentRecursive, "/p/n", &[(NodeDataChanged, "/p/n")]),
            (PersistentRecursive, "/p", &[(NodeDataChanged, "/p/n")]),
            (PersistentRecursive, "/", &[(NodeDataChanged, "/p/n")]),
            (PersistentRecursive, "/p/nn", &[]),
        ],
    );
}

#[test]
fn delete_fires_the_watches_of_surface_table_5_3() {
    row(
        &[(NodeDeleted, "/p/n"), (NodeChildrenChanged, "/p")],
        [
            (Data, "/p/n", &[(NodeDeleted, "/p/n")]),
            (Child, "/p/n", &[(NodeDeleted, "/p/n")]),
            (Child, "/p", &[(NodeChildrenChanged, "/p")]),
            (Data, "/p", &[]),
            (Persistent, "/p/n", &[(NodeDeleted, "/p/n")]),
            (Persistent, "/p", &[(NodeChildrenChanged, "/p")]),
            (PersistentRecursive, "/p/n", &[(NodeDeleted, "/p/n")]),
            (PersistentRecursive, "/p", &[(NodeDeleted, "/p/n")]),
            (PersistentRecursive, "/", &[(NodeDeleted, "/p/n")]),
            (PersistentRecursive, "/q", &[]),
        ],
    );
}

#[test]
fn creating_a_child_of_the_root_fires_watches_on_the_root() {
    let mut table = table();
    table.add(ConnId(1), "/", Child).unwrap();
    table.add(ConnId(2), "/", Persistent).unwrap();
    table.add(ConnId(3), "/", PersistentRecursive).unwrap();
    assert_eq!(fired(&mut table, NodeCreated, "/a"), [3]);
    assert_eq!(fired(&mut table, NodeChildrenChanged, "/"), [1, 2]);
}

#[test]
fn recursive_watch_never_gets_children_changed() {
    let mut table = table();
    for path in ["/", "/p", "/p/n"] {
        table.add(ConnId(1), path, PersistentRecursive).unwrap();
        assert_eq!(fired(&mut table, NodeChildrenChanged, path), [] as [u64; 0]);
    }
}

#[test]
fn connection_gets_one_event_for_a_deletion_that_matches_many_watches() {
    let mut table = table();
    for kind in EVERY_KIND {
        table.add(ConnId(1), "/p/n", kind).unwrap();
    }
    table.add(ConnId(1), "/p", PersistentRecursive).unwrap();
    table.add(ConnId(1), "/", PersistentRecursive).unwrap();
    assert_eq!(fired(&mut table, NodeDeleted, "/p/n"), [1]);
    assert!(!table.contains(ConnId(1), "/p/n", WatcherType::Data));
    assert!(!table.contains(ConnId(1), "/p/n", WatcherType::Children));
    assert!(table.contains(ConnId(1), "/p/n", WatcherType::Persistent));
    assert!(table.contains(ConnId(1), "/p/n", WatcherType::PersistentRecursive));
    assert_eq!(table.watches(), 4);
}

#[test]
fn watch_kinds_on_one_path_fire_independently() {
    let mut table = table();
    table.add(ConnId(1), "/a", PersistentRecursive).unwrap();
    table.add(ConnId(1), "/a", Child).unwrap();
    assert_eq!(fired(&mut table, NodeCreated, "/a/b"), [1]);
    assert_eq!(fired(&mut table, NodeChildrenChanged, "/a"), [1]);
    assert_eq!(fired(&mut table, NodeChildrenChanged, "/a"), [] as [u64; 0]);
    table.add(ConnId(1), "/a", Data).unwrap();
    assert_eq!(fired(&mut table, NodeDataChanged, "/a"), [1]);
    assert_eq!(fired(&mut table, NodeDataChanged, "/a"), [1]);
}

#[test]
fn repeating_a_watch_registers_it_once() {
    let mut table = table();
    for kind in EVERY_KIND {
        table.add(ConnId(1), "/a", kind).unwrap();
        table.add(ConnId(1), "/a", kind).unwrap();
    }
    assert_eq!((table.watches(), table.paths(), table.connections()), (4, 1, 1));
}

#[test]
fn remove_and_contains_match_the_exact_kind_unless_given_any() {
    let types = [WatcherType::Data, WatcherType::Children, WatcherType::Persistent, WatcherType::PersistentRecursive];
    for (kind, own) in EVERY_KIND.into_iter().zip(types) {
        let mut table = table();
        table.add(ConnId(1), "/a", kind).unwrap();
        for other in types {
            assert_eq!(table.contains(ConnId(1), "/a", other), other == own);
        }
        assert!(table.contains(ConnId(1), "/a", WatcherType::Any));
        for other in types.into_iter().filter(|&other| other != own) {
            assert!(!table.remove(ConnId(1), "/a", other));
        }
        assert!(!table.remove(ConnId(2), "/a", own));
        assert!(!table.remove(ConnId(1), "/b", own));
        assert!(table.remove(ConnId(1), "/a", own));
        assert!(!table.remove(ConnId(1), "/a", WatcherType::Any));
    }
    let mut table = table();
    for kind in EVERY_KIND {
        table.add(ConnId(1), "/a", kind).unwrap();
    }
    assert!(table.remove(ConnId(1), "/a", WatcherType::Any));
    assert_eq!((table.watches(), table.paths(), table.connections(), table.recursive), (0, 0, 0, 0));
}

#[test]
fn full_watch_table_refuses_new_watches_and_accepts_repeated_ones() {
    let mut table = WatchTable::new(2, usize::MAX, 0);
    table.add(ConnId(1), "/a", Data).unwrap();
    table.add(ConnId(1), "/b", Data).unwrap();
    assert_eq!(table.add(ConnId(1), "/c", Data), Err(TooMany));
    assert_eq!(table.add(ConnId(1), "/a", Child), Err(TooMany));
    assert_eq!((table.watches(), table.paths()), (2, 2));
    table.add(ConnId(1), "/a", Data).unwrap();
    assert_eq!(fired(&mut table, NodeDataChanged, "/a"), [1]);
    table.add(ConnId(1), "/c", Data).unwrap();
}

/// Regression: the check counted again the watches that the connection had.
#[test]
fn only_watches_that_a_connection_lacks_need_room() {
    let long = format!("/{}", "x".repeat(8000));
    for (watches_max, bytes_max) in [(2, usize::MAX), (1000, 24_000)] {
        let mut table = WatchTable::new(watches_max, bytes_max, 0);
        table.add(ConnId(1), &long, Data).unwrap();
        table.add(ConnId(1), "/b", Child).unwrap();
        let has_room = |conn, watches: &[(&str, WatchKind)]| table.has_room_for(ConnId(conn), watches.iter().copied());
        assert!(has_room(1, &[(&long, Data), ("/b", Child)]));
        assert!(!has_room(1, &[("/b", Child), (&long, Persistent)]), "of another kind");
        assert!(!has_room(2, &[(&long, Data)]), "of another connection");
        assert!(has_room(2, &[]));
    }
}

#[test]
fn events_are_delivered_in_order_of_connection_number() {
    for connections in [2u64, 5, 16, 17, 300] {
        let mut table = table();
        for n in 0..connections {
            // Every residue once, in scattered order.
            let conn = ConnId(n * 7 % connections + 1);
            table.add(conn, "/a/b", Data).unwrap();
            table.add(conn, "/a", PersistentRecursive).unwrap();
        }
        let mut expected: Vec<u64> = (0..connections).map(|n| n * 7 % connections + 1).collect();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(fired(&mut table, NodeCreated, "/a/b"), expected);
    }
}

#[test]
fn watch_on_an_invalid_path_is_accepted_and_never_fires() {
    let mut table = table();
    for path in ["", "x", "//", "/a/", "/a//b", "\0"] {
        table.add(ConnId(1), path, PersistentRecursive).unwrap();
        table.add(ConnId(1), path, Data).unwrap();
        assert!(table.contains(ConnId(1), path, WatcherType::Data));
    }
    // None of them is an ancestor of a real path, so none fires.
    assert_eq!(fired(&mut table, NodeCreated, "/a/b"), [] as [u64; 0]);
    assert_eq!(fired(&mut table, NodeCreated, "/"), [] as [u64; 0]);
    table.drop_connection(ConnId(1));
    assert_eq!((table.watches(), table.paths()), (0, 0));
}

#[test]
fn dropping_a_connection_removes_exactly_its_watches() {
    let mut table = table();
    for n in 0..100 {
        for conn in [1, 2] {
            for kind in EVERY_KIND {
                table.add(ConnId(conn), &format!("/{n}"), kind).unwrap();
            }
        }
    }
    table.drop_connection(ConnId(1));
    table.drop_connection(ConnId(3));
    assert_eq!((table.watches(), table.paths(), table.connections()), (400, 100, 1));
    assert_eq!(fired(&mut table, NodeDeleted, "/5"), [2]);
    table.drop_connection(ConnId(2));
    assert_eq!((table.watches(), table.paths(), table.connections(), table.pairs, table.recursive), (0, 0, 0, 0, 0));
    assert_eq!(table.paths.bytes(), 0);
}

#[test]
fn list_of_a_connections_fired_watches_stays_short() {
    let mut table = table();
    table.add(ConnId(1), "/kept", Persistent).unwrap();
    for n in 0..10_000 {
        let path = format!("/{}", n % 37);
        table.add(ConnId(1), &path, Data).unwrap();
        assert_eq!(fired(&mut table, NodeDataChanged, &path), [1]);
    }
    let Some(Watched::Many(list)) = table.connections.get(&ConnId(1)) else { panic!("one live path") };
    assert_eq!(list.live, 1);
    assert!(list.ids.len() <= 2 + STALE_SLACK, "{}", list.ids.len());
}

/// Compares the table with a set of triples that uses linear scans.
#[test]
fn watch_table_equals_a_naive_set_under_random_operations() {
    use std::collections::BTreeSet;
    let paths = ["/", "/a", "/a/b", "/a/b/c", "/a/bb", "/x", "", "/a/"];
    let mut table = WatchTable::new(150, usize::MAX, 9);
    let mut plain: BTreeSet<(u64, &str, usize)> = BTreeSet::new();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % n
    };
    for step in 0..50_000 {
        let (conn, path, kind) = (below(40) as u64, paths[below(paths.len())], below(4));
        match below(20) {
            0..=11 => {
                let fits = plain.contains(&(conn, path, kind)) || plain.len() < 150;
                assert_eq!(table.add(ConnId(conn), path, EVERY_KIND[kind]).is_ok(), fits, "step {step}");
                if fits {
                    plain.insert((conn, path, kind));
                }
            }
            12 => {
                let types = [
                    WatcherType::Data,
                    WatcherType::Children,
                    WatcherType::Persistent,
                    WatcherType::PersistentRecursive,
                ];
                assert_eq!(table.contains(ConnId(conn), path, types[kind]), plain.contains(&(conn, path, kind)));
                assert_eq!(table.remove(ConnId(conn), path, types[kind]), plain.remove(&(conn, path, kind)));
            }
            13 => {
                let any = plain.iter().any(|&(c, p, _)| c == conn && p == path);
                assert_eq!(table.remove(ConnId(conn), path, WatcherType::Any), any);
                plain.retain(|&(c, p, _)| c != conn || p != path);
            }
            14 => {
                table.drop_connection(ConnId(conn));
                plain.retain(|&(c, _, _)| c != conn);
            }
            15 => {
                let wanted: Vec<_> = (0..below(8)).map(|_| (paths[below(paths.len())], below(4))).collect();
                let lacks = wanted.iter().filter(|&&(path, kind)| !plain.contains(&(conn, path, kind))).count();
                let fits = lacks == 0 || plain.len() + lacks <= 150;
                let wanted = wanted.iter().map(|&(path, kind)| (path, EVERY_KIND[kind]));
                assert_eq!(table.has_room_for(ConnId(conn), wanted), fits, "step {step}");
            }
            _ => {
                let event = EVERY_EVENT[below(4)];
                let is_ancestor = |above: &str| {
                    above == "/" && path.len() > 1 && path.starts_with('/')
                        || path.strip_prefix(above).is_some_and(|rest| !above.is_empty() && rest.starts_with('/'))
                };
                let matches = |&(_, p, k): &(u64, &str, usize)| match EVERY_KIND[k] {
                    Data => p == path && event != NodeChildrenChanged,
                    Child => p == path && matches!(event, NodeChildrenChanged | NodeDeleted),
                    Persistent => p == path,
                    PersistentRecursive => event != NodeChildrenChanged && (p == path || is_ancestor(p)),
                };
                let expected: BTreeSet<u64> = plain.iter().filter(|w| matches(w)).map(|w| w.0).collect();
                plain.retain(|w| !(matches(w) && w.2 < 2));
                assert!(fired(&mut table, event, path).into_iter().eq(expected), "step {step}: {event:?} on {path:?}");
            }
        }
        assert_eq!(table.watches() as usize, plain.len(), "step {step}");
        assert_eq!(table.recursive as usize, plain.iter().filter(|w| w.2 == 3).count());
        let watched: BTreeSet<&str> = plain.iter().map(|w| w.1).collect();
        let watching: BTreeSet<u64> = plain.iter().map(|w| w.0).collect();
        assert_eq!((table.paths() as usize, table.connections()), (watched.len(), watching.len()));
    }
}

/// Reads every page of a list; returns its rows and the number of pages.
fn listed(table: &WatchTable, by: ListedBy) -> (Vec<(u64, String)>, usize) {
    let (mut rows, mut pages, mut from) = (Vec::new(), 0, Some(Mark::default()));
    while let Some(mark) = from {
        pages += 1;
        assert!(pages < 10_000, "the list ends");
        let before = rows.len();
        from = table.page(by, mark, ROWS_MAX, &mut |conn, path| rows.push((conn.0, path.to_owned())));
        assert!(rows.len() - before <= ROWS_MAX, "a page has a bound");
    }
    (rows, pages)
}

#[test]
fn watch_listing_has_each_data_watch_once_and_grouped() {
    let mut table = WatchTable::new(1_000_000, 1 << 30, 7);
    let mut expected = std::collections::BTreeSet::new();
    let mut seed = 1u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A few connections watch much, and a few paths have many watchers.
        let conn = if seed >> 60 < 8 { 1 + (seed >> 50) % 3 } else { 1 + (seed >> 40) % 2000 };
        let path = if seed >> 56 & 7 == 0 { "/popular".to_owned() } else { format!("/p{}", (seed >> 20) % 30_000) };
        if (seed >> 12).is_multiple_of(5) {
            table.fire(EventKind::NodeDataChanged, &path, &mut |_| {});
            expected.retain(|(_, watched)| *watched != path);
        } else {
            table.add(ConnId(conn), &path, WatchKind::Data).unwrap();
            expected.insert((conn, path));
        }
        // Child watches are not listed.
        table.add(ConnId(conn), &format!("/children/{}", seed % 50), WatchKind::Child).unwrap();
    }
    for by in [ListedBy::Connection, ListedBy::Path] {
        let (mut rows, pages) = listed(&table, by);
        assert!(pages > 1, "{pages}");
        let group = |row: &(u64, String)| if by == ListedBy::Path { row.1.clone() } else { row.0.to_string() };
        let mut groups: Vec<_> = rows.iter().map(group).collect();
        groups.dedup();
        let begun = groups.len();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(begun, groups.len(), "each group stands together");
        rows.sort_unstable();
        assert_eq!(rows, expected.iter().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn watch_listing_pages_end_early_on_long_paths_or_empty_slots() {
    let mut table = WatchTable::new(1_000_000, 1 << 30, 7);
    assert_eq!(listed(&table, ListedBy::Connection), (vec![], 1));
    for number in 0..20 {
        table.add(ConnId(1), &format!("/{}{number}", "x".repeat(60_000)), WatchKind::Data).unwrap();
    }
    for by in [ListedBy::Connection, ListedBy::Path] {
        let (rows, pages) = listed(&table, by);
        assert_eq!((rows.len(), pages >= 4), (20, true), "{pages} pages");
    }
    // Many slots to examine and no rows to list, in one connection and in many.
    let mut table = WatchTable::new(1_000_000, 1 << 30, 7);
    for number in 0..150_000 {
        table.add(ConnId(number / 3 * 3 % 75_000), &format!("/{number}"), WatchKind::Child).unwrap();
        table.add(ConnId(200_000), &format!("/{number}"), WatchKind::Child).unwrap();
    }
    for by in [ListedBy::Connection, ListedBy::Path] {
        let (rows, pages) = listed(&table, by);
        assert_eq!((rows.len(), pages >= 4), (0, true), "{pages} pages");
    }
}
