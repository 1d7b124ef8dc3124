import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { pick, type Random, randomOf } from '../../test/long/random.ts';
import { emptyModel } from '../../test/support/records.ts';
import { type ClientBench, openClientBench, respond, startServer } from './client.fixture.ts';
import { type FollowOptions, isTrellisError, type Records, Trellis } from './index.ts';

type City = { city: string };

let bench: ClientBench;
before(async () => {
  bench = await openClientBench();
});
after(() => bench.close());
const fresh = () => bench.fresh<City>();

/** As a reset with `emptyCache` does it. */
const empty = ({ model }: Records<City>) => emptyModel(bench.service.db, model);
const cities = (...ids: string[]) => ids.map((id) => ({ id, city: `city ${id}` }));

/** A copy that is kept as docs/guides/sdk.md shows it; `during` each batch something may happen, or the program die. */
function copyOf(records: Records<City>, during: (at: 'before' | 'behind') => Promise<void> = async () => {}) {
  const held = new Map<string, string | undefined>();
  const marked = new Set<string>();
  const beginnings: boolean[] = [];
  const follow = async (options: Partial<FollowOptions> = {}) => {
    for await (const batch of records.follow({
      consumer: 'copy',
      onExpired: 'restart',
      untilCaughtUp: true,
      ...options,
    })) {
      await during('before');
      beginnings.push(batch.isRestart);
      if (batch.isRestart) for (const id of held.keys()) marked.add(id);
      for (const { id, city, _trellis_metadata: about } of batch.records) {
        marked.delete(id);
        if (about.last_action === 'DELETED') held.delete(id);
        else if (about.pruned_at === null) held.set(id, city);
      }
      if (batch.isCaughtUp) {
        for (const id of marked) held.delete(id);
        marked.clear();
      }
      await during('behind');
    }
    return [...held.keys()].sort();
  };
  return { held, follow, beginnings };
}

test('a follower of an emptied dataset restarts, and ends with the records of the service', async () => {
  const records = fresh();
  await records.save(cities('old-1', 'old-2'));
  const { follow, beginnings } = copyOf(records);
  assert.deepEqual(await follow(), ['old-1', 'old-2']);
  await empty(records);
  await records.save(cities('1', '2'));
  assert.deepEqual(await follow({ batchSize: 1 }), ['1', '2']);
  assert.deepEqual(await follow(), ['1', '2']);
  assert.deepEqual(
    beginnings,
    [true, true, false],
    'the second beginning has two batches, the last run none',
  );
  await empty(records);
  assert.deepEqual(await follow(), []);
});

test('a follower without a restart gets an error for an emptied dataset', async () => {
  const records = fresh();
  await records.save(cities('1', '2'));
  const { follow } = copyOf(records);
  await follow({ onExpired: 'fail' });
  await empty(records);
  for (const saved of [cities(), cities('3')]) {
    if (saved.length > 0) await records.save(saved);
    await assert.rejects(follow({ onExpired: 'fail' }), (error) => {
      assert.ok(isTrellisError(error, 'cursor_expired'));
      assert.match(error.message, /emptied/);
      return error.status === 410;
    });
  }
});

test('a consumer without a position gets no error for an emptied dataset', async () => {
  const records = fresh();
  const { follow } = copyOf(records);
  for await (const _ of records.follow({ consumer: 'copy', untilCaughtUp: true }))
    assert.fail('nothing is there');
  await records.save(cities('1'));
  await empty(records);
  await records.save(cities('2'));
  assert.deepEqual(await follow({ onExpired: 'fail' }), ['2']);
});

test('lists, pages and exports accept an earlier cursor unless unlessEmptied is set', async () => {
  const records = fresh();
  await records.save(cities('1'));
  const [
    {
      _trellis_metadata: { cursor },
    } = assert.fail(),
  ] = await records.list().toArray();
  await empty(records);
  await records.save(cities('2'));
  assert.equal((await records.list({ cursor }).toArray()).length, 1);
  for (const read of [
    () => records.list({ cursor, unlessEmptied: true }).toArray(),
    () => records.page({ cursor, unlessEmptied: true }),
    () => Array.fromAsync(records.export({ cursor, unlessEmptied: true })),
  ])
    await assert.rejects(read(), (error) => isTrellisError(error, 'cursor_expired'));
});

/** What somebody else does to the records. */
async function change(records: Records<City>, random: Random): Promise<void> {
  const ids = Array.from({ length: 1 + pick(random, 4) }, () => String(pick(random, 12)));
  const choice = random();
  if (choice < 0.2) return empty(records);
  if (choice < 0.35) return void (await records.delete(ids));
  if (choice < 0.5) {
    const until = (await records.list().toArray()).at(-1)?._trellis_metadata.cursor;
    if (until !== undefined) await records.prune({ until });
    return;
  }
  await records.save([...new Set(ids)].map((id) => ({ id, city: `${id} ${pick(random, 1000)}` })));
}

test('a copy with restarts ends equal to the service after random saves, deletions, prunes and emptyings', async () => {
  for (let seed = 1; seed <= 6; seed += 1) {
    const random = randomOf(seed);
    const records = fresh();
    await records.save(cities('0'));
    let isCalm = false;
    const { held, follow } = copyOf(records, async () => {
      if (isCalm) return;
      if (random() < 0.3) await change(records, random);
      if (random() < 0.15) throw new Error('the program dies');
    });
    for (let turn = 0; turn < 8; turn += 1) {
      for (let left = pick(random, 4); left > 0; left -= 1) await change(records, random);
      await follow({ batchSize: 1 + pick(random, 4) }).catch((error) => assert.match(error.message, /dies/));
    }
    isCalm = true;
    await follow();
    const there = (await records.list().toArray()).filter((one) => one._trellis_metadata.deleted_at === null);
    const live = new Set(there.map(({ id }) => id));
    assert.deepEqual(
      [...held.keys()].filter((id) => !live.has(id)),
      [],
      `seed ${seed}`,
    );
    // What was pruned before it was taken is gone for the copy.
    for (const { id, city, _trellis_metadata: about } of there)
      if (about.pruned_at === null) assert.equal(held.get(id), city, `seed ${seed}`);
  }
});

test('the parameter is omitted for a minute after an older service refused it', async (t) => {
  const parameters: (string | null)[] = [];
  let isOld = true;
  const stop = new AbortController();
  const service = await startServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://localhost');
    if (pathname !== '/records') return respond(response, { body: { cursor: 'c1' } });
    const parameter = searchParams.get('unless_emptied');
    parameters.push(parameter);
    if (parameters.length === 6) stop.abort(new Error('enough'));
    if (isOld && parameter !== null)
      return respond(response, {
        status: 400,
        body: { error: { code: 'invalid_query_params', message: 'unknown', errors: [] } },
      });
    if (parameters.length === 3) {
      isOld = false;
      t.mock.timers.tick(61_000);
    }
    respond(response, { body: { records: [], next_cursor: null } });
  });
  t.mock.timers.enable({ apis: ['Date'] });
  try {
    const records = new Trellis({ url: service.url, key: 'k' }).connection('i', 'c').records('City');
    const following = records.follow({ consumer: 'one', pollMs: 1, signal: stop.signal });
    await assert.rejects(following.next(), /enough/);
    assert.deepEqual(parameters, ['true', null, null, 'true', 'true', 'true']);
  } finally {
    await service.close();
  }
});

for (const { begun, held, first } of [
  { begun: 'behind a position', held: 'c10', first: 'c10' },
  { begun: 'at the start', held: null, first: 'c11' },
])
  test(`what was emptied while an older service answered is found as soon as a newer one does, ${begun}`, async (t) => {
    const record = (id: number) => ({
      id: String(id),
      _trellis_metadata: { cursor: `c${id}`, deleted_at: null },
    });
    let isOld = true;
    let read = 10;
    const service = await startServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url ?? '', 'http://localhost');
      if (pathname !== '/records') return respond(response, { body: { cursor: held } });
      const isAsked = searchParams.has('unless_emptied');
      if (isAsked && isOld)
        return respond(response, {
          status: 400,
          body: { error: { code: 'invalid_query_params', message: 'no', errors: [] } },
        });
      // It was emptied behind the first position that is known.
      if (isAsked && searchParams.get('cursor') === first)
        return respond(response, {
          status: 410,
          body: { error: { code: 'cursor_expired', message: 'emptied' } },
        });
      read += 1;
      if (read === 13) {
        isOld = false;
        t.mock.timers.tick(61_000);
      }
      respond(response, { body: { records: [record(read)], next_cursor: `c${read}` } });
    });
    t.mock.timers.enable({ apis: ['Date'] });
    try {
      const records = new Trellis({ url: service.url, key: 'k' }).connection('i', 'c').records('City');
      const seen: string[] = [];
      const following = async () => {
        for await (const batch of records.follow({ consumer: 'one', pollMs: 1 }))
          seen.push(...batch.records.map(({ id }) => String(id)));
      };
      await assert.rejects(following(), { code: 'cursor_expired' });
      assert.deepEqual(seen, ['11', '12', '13']);
    } finally {
      await service.close();
    }
  });
