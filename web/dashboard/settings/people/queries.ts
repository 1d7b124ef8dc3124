import { queryOptions } from '@tanstack/react-query';
import { type Answer, type Body, call } from '../../../api/client.ts';

export type User = Answer<'GET /users'>['data'][number];
export type Invitation = Answer<'GET /users/invitations'>['data'][number];
type NewInvitation = Answer<'POST /users/invitations'>['data'];
export type Role = User['environments'][number]['role'];
export type Grant = { role: Role; environments: string[] };

/** Routes about users belong to no environment, but the cookie is only accepted with the header. */
const environment = '*';

export const usersQuery = () =>
  queryOptions({
    queryKey: ['users'],
    queryFn: async ({ signal }) => (await call('GET /users', { environment, signal })).data,
    refetchInterval: 10_000,
  });

export const invitationsQuery = () =>
  queryOptions({
    queryKey: ['invitations'],
    queryFn: async ({ signal }) => (await call('GET /users/invitations', { environment, signal })).data,
    refetchInterval: 10_000,
  });

/** An owner has access to all environments. */
function granted({ role, environments }: Grant): Body<'PATCH /users/{id}'> {
  return role === 'owner' ? { role } : { role, environments };
}

/** The link is returned only once. */
export async function invite({ email, ...grant }: Grant & { email: string }): Promise<NewInvitation> {
  const body = { ...granted(grant), ...(email !== '' && { email }) };
  return (await call('POST /users/invitations', { environment, body })).data;
}

export async function takeBack(id: number): Promise<void> {
  await call('DELETE /users/invitations/{id}', { environment, path: { id } });
}

export async function changeRole({ id, ...grant }: Grant & { id: string }): Promise<void> {
  await call('PATCH /users/{id}', { environment, path: { id }, body: granted(grant) });
}

export async function removeUser(id: string): Promise<void> {
  await call('DELETE /users/{id}', { environment, path: { id } });
}

/** The link is returned only once. */
export async function newResetLink(id: string) {
  return (await call('POST /users/{id}/password-reset', { environment, path: { id } })).data;
}
