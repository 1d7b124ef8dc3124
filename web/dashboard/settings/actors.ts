import { useQuery } from '@tanstack/react-query';
import { useEnvironment } from '../shell/environment.ts';
import { useIsOwner, useMay } from '../sign-in/queries.ts';
import { keysQuery } from './keys/queries.ts';
import { usersQuery } from './people/queries.ts';

export type Actors = {
  /** The name of a key, a user or a connect session by the ID in an entry, such as `key:4`. */
  nameOf: (actor: string) => string | undefined;
  /** The ID of a name; letters may be small or large. */
  idOf: (name: string) => string | undefined;
};

const sessionName = 'Connect session ';

/** The names of actors that the user may read: keys and, for owners, users. */
export function useActors(): Actors {
  const environment = useEnvironment();
  const may = useMay();
  const isOwner = useIsOwner();
  const { data: keys = [] } = useQuery({ ...keysQuery(environment), enabled: may('keys') });
  const { data: users = [] } = useQuery({ ...usersQuery(), enabled: isOwner });
  const names = new Map<string, string>([
    ...keys.map(({ id, name }) => [`key:${id}`, `${name} (key)`] as const),
    ...users.map(({ id, name }) => [`user:${id}`, name] as const),
  ]);
  return {
    nameOf: (actor) =>
      names.get(actor) ?? (/^session:\d+$/.test(actor) ? actor.replace('session:', sessionName) : undefined),
    idOf: (name) => {
      const isNamed = (one: string) => one.toLowerCase() === name.toLowerCase();
      return (
        [...names].find(([, known]) => isNamed(known))?.[0] ??
        keys.filter((key) => isNamed(key.name)).map(({ id }) => `key:${id}`)[0] ??
        (/^connect session \d+$/i.test(name) ? name.replace(/\D+/, 'session:') : undefined)
      );
    },
  };
}
