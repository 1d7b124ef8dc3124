import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Queryable } from '../db/pool.ts';
import type { Person, PersonOf } from '../http/auth/caller.ts';
import { TtlCache } from '../ttl-cache.ts';
import { listPlaces } from './members.ts';
import type { SignIn } from './sign-in.ts';

type PersonReader = {
  personOf: PersonOf;
  /** Must be called when this node has ended a session or changed a right, so that the change applies here immediately. */
  forget(): void;
};

/**
 * Finds the person of a cookie. The result is cached for a second, as for keys: so the end of a session and the loss of a right
 * take effect on all nodes within a second. The cache holds the digest of a cookie, not the cookie.
 */
export function createPersonReader(given: {
  signIn: SignIn;
  db: Queryable;
  /** The prefix of the names of the cookies. */
  cookieName: string;
  clock?: (() => number) | undefined;
}): PersonReader {
  const { signIn, db, cookieName, clock } = given;
  const people = new TtlCache<{ cookie: string }, { person: Person | undefined }>({
    load: async ({ cookie }) => ({ person: await readPerson(cookie) }),
    keyOf: ({ cookie }) => createHash('sha256').update(cookie).digest('base64'),
    ...(clock && { clock }),
    max: 1_000,
  });

  async function readPerson(cookie: string): Promise<Person | undefined> {
    // The page extends its session at /api/auth/get-session, which sets the new cookie.
    const { api } = await signIn();
    const found = await api.getSession({
      headers: new Headers({ cookie }),
      query: { disableRefresh: true },
    });
    if (found === null) return undefined;
    const { id, name, email, twoFactorEnabled } = found.user;
    const { isOwner, places } = await listPlaces(db, id);
    return {
      userId: id,
      name,
      email,
      hasTwoFactor: twoFactorEnabled === true,
      isOwner,
      places: new Map(
        places.map(({ environment, environmentId, role }) => [environment, { environmentId, role }]),
      ),
    };
  }

  return {
    async personOf({ cookie }: IncomingHttpHeaders) {
      if (cookie === undefined || !cookie.includes(cookieName)) return undefined;
      return (await people.get({ cookie })).person;
    },
    forget: () => people.forgetWhere(() => true),
  };
}

/** If the sign-in is switched off, every caller is an owner: any program that can reach this machine's loopback. */
export function everybodyIsOwner(db: Queryable): PersonOf {
  return async () => {
    const rows = await db.query<{ id: number; name: string }>('select id, name from environment order by id');
    return {
      userId: 'local',
      name: 'Sign-in is off',
      email: '',
      hasTwoFactor: false,
      isOwner: true,
      places: new Map(rows.map(({ id, name }) => [name, { environmentId: id, role: 'owner' as const }])),
    };
  };
}
