/**
 * The authentication of our own pages: the caller of a cookie, and its environment.
 *
 * Owns: when a cookie counts at all. Does not own: the person of a cookie (`users/person-reader.ts`), the rights of a
 * role (`roles.ts`).
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { Brand } from '../brand.ts';
import { AppError } from '../errors.ts';
import type { UserCaller } from './caller.ts';
import { type Role, scopesOfRole } from './roles.ts';

/** Somebody who is signed in. */
export type Person = {
  userId: string;
  name: string;
  email: string;
  hasTwoFactor: boolean;
  isOwner: boolean;
  /** By the name of the environment; of an owner all there are. */
  places: ReadonlyMap<string, { environmentId: number; role: Role }>;
};

/** Whose cookie it is; undefined: nobody's. */
export type PersonOf = (headers: IncomingHttpHeaders) => Promise<Person | undefined>;

/** What is looked at of a request. */
export type Carried = { method?: string | undefined; headers: IncomingHttpHeaders };

export type CookieAuthenticator = {
  /** Whether a request asks to be judged by its cookie: it has no key, and names an environment. */
  isFor(headers: IncomingHttpHeaders): boolean;
  /** Rejects with `not_signed_in` (401) or `cross_site_request` (403). */
  person(request: Carried): Promise<Person>;
  /** As `person`, and with `forbidden` where they have no role in the environment that the request names. */
  caller(request: Carried): Promise<UserCaller>;
};

/**
 * A cookie counts only with the header `X-<Brand>-Environment`, which no form, link or image can send, and no page of
 * another origin without a preflight that is never answered with credentials. Beyond that, Origin must be ours where it is
 * sent and for every method that writes, and Sec-Fetch-Site, where it is sent, must say the same.
 */
export function createCookieAuthenticator({
  brand,
  baseUrl,
  personOf,
}: {
  brand: Brand;
  baseUrl: string;
  personOf: PersonOf;
}): CookieAuthenticator {
  const header = brand.header('Environment');
  const named = header.toLowerCase();
  const { origin } = new URL(baseUrl);

  async function person({ method, headers }: Carried): Promise<Person> {
    if (headers[named] === undefined) {
      throw new AppError('not_signed_in', `Sign in, and send the header ${header}.`);
    }
    requireSameOrigin({ method, headers }, origin);
    const found = await personOf(headers);
    if (found === undefined) throw new AppError('not_signed_in');
    return found;
  }

  return {
    isFor: (headers) => headers.authorization === undefined && headers[named] !== undefined,
    person,
    async caller(request) {
      const { userId, places } = await person(request);
      const environment = String(request.headers[named]);
      const place = places.get(environment);
      if (place === undefined) {
        throw new AppError('forbidden', `You have no role in an environment of the name in ${header}.`);
      }
      const { environmentId, role } = place;
      return { kind: 'user', environmentId, environment, userId, role, scopes: scopesOfRole(role) };
    },
  };
}

/** Browsers send no Origin with a GET to the same one (Fetch standard, "append a request `Origin` header"). */
function requireSameOrigin({ method, headers }: Carried, ours: string): void {
  const isRead = method === 'GET' || method === 'HEAD';
  const { origin } = headers;
  if (origin === undefined ? !isRead : origin !== ours) {
    throw new AppError('cross_site_request', `The header Origin must be ${ours}, the address of BASE_URL.`);
  }
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin') throw new AppError('cross_site_request');
}
