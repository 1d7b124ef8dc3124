/**
 * A sign-in without OAuth, as many providers have it: `POST /login` takes a user name and a password and returns a session
 * token with its lifetime, and a refresh token for `POST /login/renewal`. Google does not have it.
 *
 * A user is a client of the sandbox: its ID is the user name, its secret the password. The token is valid for the APIs.
 */
import { isSecretOf } from '../clients.ts';
import { answerUnder } from '../faults/faults.ts';
import { type Incoming, json, type Reply } from '../http.ts';
import { accessTokenSeconds } from '../tokens.ts';
import { fullScope } from './scopes.ts';
import type { TokenParts } from './token.ts';

const scopes = ['spreadsheets', 'drive'].map((name) => fullScope(`https://www.googleapis.com/auth/${name}`));

const refused = (status: number, reason: string) => json(status, { errors: [{ reason }] });

/** Answers both. A wrong password is a 401 with the code `wrong_credentials`, an unknown refresh token `expired`. */
export async function answerLogin(request: Incoming, parts: TokenParts): Promise<Reply> {
  const { about } = request;
  const fields = fieldsOf(request);
  const before = parts.tokens.findRefresh(bearerOf(request) ?? '');
  const client = parts.clients.find(before?.clientId ?? fields.get('username') ?? '');
  Object.assign(about, { sub: client?.clientId, clientId: client?.clientId });
  const counted = parts.refreshes.begin(about);
  try {
    const fault = parts.faults.takeAt(['client', 'token'], about);
    return await answerUnder(fault, {
      signal: request.signal,
      projectNumber: client?.projectNumber ?? '',
      work: async () => {
        if (request.path === '/login/renewal') {
          if (before === undefined || !parts.tokens.isLive(before)) return refused(401, 'expired');
        } else if (client === undefined || !isSecretOf(client, fields.get('password') ?? ''))
          return refused(401, 'wrong_credentials');
        if (client === undefined) return refused(401, 'expired');
        const of = { client, sub: client.clientId, scopes: scopes };
        const access = parts.tokens.issueAccess({ ...of, offline: false, lifeSeconds: accessTokenSeconds });
        const refresh =
          request.path === '/login/renewal' && before
            ? parts.tokens.replace(before)
            : parts.tokens.issueRefresh(of);
        counted.accept();
        await parts.save();
        const session = { token: access.token, renew_with: refresh.token };
        return json(200, { session, ttl_ms: accessTokenSeconds * 1000 });
      },
    });
  } finally {
    counted.end();
  }
}

/** A form, or JSON whose fields stand in `user`. */
function fieldsOf({ headers, body }: Incoming): URLSearchParams {
  if (!headers['content-type']?.startsWith('application/json')) return new URLSearchParams(body.toString());
  const { user } = JSON.parse(body.toString() || '{}') as { user?: Record<string, string> };
  return new URLSearchParams(user);
}

function bearerOf({ headers }: Incoming): string | undefined {
  return /^Bearer (.+)$/.exec(headers.authorization ?? '')?.[1];
}
