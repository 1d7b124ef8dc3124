import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Queryable } from '../db/pool.ts';
import type { Person, PersonOf } from '../http/cookie-authenticator.ts';
import { TtlCache } from '../ttl-cache.ts';
import { listPlaces } from './members.ts';
import type { SignIn } from './sign-in.ts';

type PersonReader = {
  personOf: PersonOf;
  /** To be called when a session ended or a right changed here: this node goes by it at once. */
  forget(): void;
};

/**
 * Finds the person of a cookie. The answer is cached for a second, as for keys: so the end of a session and the loss of a
 * right take effect everywhere within a second. A cookie is not held in memory, its digest is.
 */
export function createPersonReader({
  signIn,
  db,
  cookieName,
  clock,
}: {
  signIn: SignIn;
  db: Queryable;
  /** What the names of the cookies begin with. */
  cookieName: string;
  clock?: (() => number) | undefined;
}): PersonReader {
  const people = new TtlCache<{ cookie: string }, { person: Person | undefined }>({
    load: async ({ cookie }) => ({ person: await readPerson(cookie) }),
    keyOf: ({ cookie }) => createHash('sha256').update(cookie).digest('base64'),
    ...(clock && { clock }),
    max: 1_000,
  });

  async function readPerson(cookie: string): Promise<Person | undefined> {
    // The page prolongs its session by itself, at /api/auth/get-session, where it gets the new cookie.
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

/** With the sign-in switched off every caller is an owner: any program that can reach this machine's loopback. */
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
