import { answerUnder, type Faults } from '../faults/faults.ts';
import type { Grants } from '../grants.ts';
import { type Incoming, json, type Reply } from '../http.ts';
import type { Tokens } from '../tokens.ts';
import { NO_STORE, OAuthRefusal, readForm } from './form.ts';

/**
 * Answers `POST /revoke`: any live token, in the query or the form, without client authentication.
 *
 * Like Google's and unlike RFC 7009, it takes back everything the account granted the *project* and ends the
 * tokens of all its clients; and a token that is dead already is a 400.
 */
export async function answerRevoke(
  request: Incoming,
  parts: { tokens: Tokens; grants: Grants; faults: Faults; save: () => Promise<void> },
): Promise<Reply> {
  try {
    const text = request.query.get('token') ?? readForm(request).get('token');
    if (!text) throw new OAuthRefusal(400, 'invalid_request', 'Missing required parameter: token');
    const refresh = parts.tokens.findRefresh(text);
    const token =
      parts.tokens.findAccess(text) ?? (refresh && parts.tokens.isLive(refresh) ? refresh : undefined);
    const { about } = request;
    Object.assign(about, { sub: token?.sub, clientId: token?.clientId });
    const fault = parts.faults.takeAt(['revoke'], about);
    const reply = await answerUnder(fault, {
      signal: request.signal,
      projectNumber: token?.projectNumber ?? '',
      work: async () => {
        if (token === undefined) throw new OAuthRefusal(400, 'invalid_token', 'Token expired or revoked');
        parts.tokens.endAll(token);
        parts.grants.remove(token);
        await parts.save();
        return json(200, {});
      },
    });
    return { ...reply, headers: { ...NO_STORE, ...reply.headers } };
  } catch (error) {
    if (error instanceof OAuthRefusal) return error.toReply();
    throw error;
  }
}
