import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { OAuth2Credentials } from '../../auth-modes/oauth2-credentials.ts';
import type { JsonObject } from '../../auth-modes/token-response.ts';
import { isDue, isExpired, isUsable } from './refresh-due.ts';

const now = new Date('2026-11-21T12:00:00Z');
const token = (leftS: number, raw: JsonObject = {}): OAuth2Credentials => ({
  type: 'OAUTH2',
  access_token: 'access',
  refresh_token: 'refresh',
  expires_at: new Date(now.getTime() + leftS * 1000).toISOString(),
  raw,
});

test('a token is due when five minutes or a tenth of its life remain, whichever is less', () => {
  const cases: [life: JsonObject, dueS: number][] = [
    [{ expires_in: 86_400 }, 300],
    [{ expires_in: 3599 }, 300],
    [{ expires_in: '1800' }, 180],
    [{ expires_in: 5 }, 0.5],
    [{ authed_user: { expires_in: 600 } }, 60],
    [{}, 300],
    [{ expires_in: 0 }, 300],
    [{ expires_in: 'soon' }, 300],
  ];
  for (const [raw, dueS] of cases) {
    assert.equal(isDue(token(dueS + 0.1, raw), now), false, JSON.stringify(raw));
    assert.equal(isDue(token(dueS - 0.1, raw), now), true, JSON.stringify(raw));
  }
});

test('a due token is used while it is good for 30 seconds, or half of its margin', () => {
  assert.deepEqual([isUsable(token(31), now), isUsable(token(29), now)], [true, false]);
  const short = { expires_in: 5 };
  assert.deepEqual([isUsable(token(0.3, short), now), isUsable(token(0.2, short), now)], [true, false]);
});

test('a token without an end is never due, and one that nothing renews only when it has ended', () => {
  const { expires_at: _end, ...endless } = token(0);
  assert.deepEqual(
    [isDue(endless, now), isUsable(endless, now), isExpired(endless, now)],
    [false, true, false],
  );
  const { refresh_token: _token, ...last } = token(1);
  assert.equal(isDue(last, now), false);
  assert.equal(isDue({ ...last, expires_at: now.toISOString() }, now), true);
});

test('a client without a token needs one at once, and one whose token has an end another in time', () => {
  const client = { type: 'OAUTH2_CC', client_id: 'i', client_secret: 's', raw: {} } as const;
  assert.deepEqual([isDue(client, now), isUsable(client, now), isExpired(client, now)], [true, false, true]);
  const { expires_at } = token(299);
  assert.equal(isDue({ ...client, token: 't', expires_at: expires_at! }, now), true);
  assert.equal(isDue({ ...client, token: 't' }, now), false);
});
