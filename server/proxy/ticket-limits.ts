/** What a ticket asks of a call beyond its rules. Pure. */
import { AppError } from '../errors.ts';
import type { TicketRights } from '../http/caller.ts';
import type { Call } from './call.ts';

/** Throws `proxy_rule_denied` (403) where the call is for another connection or for an address of its own choice. */
export function requireTicketed(ticket: TicketRights, call: Call): void {
  if (call.integrationKey !== ticket.integrationKey || call.connectionId !== ticket.connectionId)
    throw denied('it is for another connection');
  // The paths are meant at the address of the provider.
  if (call.override) throw denied('it takes no Base-Url-Override');
}

/** As `requireTicketed`, once the connection is known: one that was made anew under the same ID is another. */
export function requireSameConnection(ticket: TicketRights, connection: { id: number }): void {
  if (connection.id !== ticket.connectionRow) throw denied('its connection was deleted');
}

function denied(reason: string): AppError {
  return new AppError('proxy_rule_denied', `The ticket refuses this call: ${reason}.`, {
    payload: { of: 'ticket' },
  });
}

/** The body of a call has more bytes than its ticket allows. */
export function requestBeyond(): AppError {
  return new AppError('ticket_bytes_exceeded');
}

/** The answer has more; the provider has done what was asked all the same. */
export function answerBeyond(): AppError {
  return new AppError(
    'ticket_bytes_exceeded',
    'The provider answered with more bytes than the ticket allows. What the call does is done.',
    { status: 502 },
  );
}

/** They would act on all that is served at our address, the dashboard included. */
const actsOnOrigin = new Set([
  'set-cookie', 'set-cookie2', 'clear-site-data', 'strict-transport-security', 'service-worker-allowed',
]); // biome-ignore format: a list reads better in lines

/** The headers of a provider's answer for a page: nothing of it can act on our address, or run there. */
export function shieldedHeaders(headers: readonly string[]): string[] {
  const kept: string[] = [];
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const name = headers[at] as string;
    if (!actsOnOrigin.has(name.toLowerCase())) kept.push(name, headers[at + 1] as string);
  }
  kept.push('content-security-policy', 'sandbox');
  return kept;
}
