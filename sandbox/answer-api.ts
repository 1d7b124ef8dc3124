import { bearerToken, checkAccess } from './access.ts';
import type { Accounts } from './accounts.ts';
import type { Api } from './api.ts';
import type { Clients } from './clients.ts';
import { answerUnder, type Faults } from './faults/faults.ts';
import type { Incoming, Reply } from './http.ts';
import type { Quota } from './quota.ts';
import type { Tokens } from './tokens.ts';

/** Answers a request to an API: judges its token, lets faults strike, and leaves the rest to the API. */
export async function answerApi(
  request: Incoming,
  by: { api: Api; tokens: Tokens; accounts: Accounts; clients: Clients; faults: Faults; quota: Quota },
): Promise<Reply> {
  const { about } = request;
  const { authorization } = request.headers;
  let access = checkAccess(authorization, by);
  if (access.ok) Object.assign(about, { sub: access.sub, clientId: access.clientId });
  if (access.ok && by.faults.strikes('access_token_ended', about)) {
    by.tokens.endAccess(bearerToken(authorization)!);
    access = { ok: false, kind: 'invalid' };
  }
  const granted = access;
  const struck = by.faults.takeAt(['api'], about);
  const client = by.clients.find(about.clientId ?? '') ?? by.clients.builtIn();
  // Faults are for who gets in; the log of calls says whose token it was also where it has ended.
  if (!granted.ok) Object.assign(about, by.tokens.ownerOf(bearerToken(authorization) ?? ''));
  return answerUnder(struck, {
    signal: request.signal,
    projectNumber: client.projectNumber,
    work: async () => {
      const { projectNumber } = client;
      const refusal = granted.ok && by.quota.take({ ...request, sub: granted.sub, projectNumber });
      return refusal || by.api.handle({ ...request, access: granted });
    },
  });
}
