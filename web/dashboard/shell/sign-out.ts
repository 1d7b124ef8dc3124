import { notifications } from '@mantine/notifications';
import { onlineManager, type QueryClient, useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useContext } from 'react';
import { isAnyUnsaved, UnsavedContext } from '../../ui/unsaved.ts';
import { signOut } from '../sign-in/queries.ts';

export const signOutKey = ['sign-out'];

/** Removes the data and the notices of a user whose session has ended. */
export function removeUserData(queries: QueryClient): void {
  queries.removeQueries({ predicate: ({ queryKey: [name] }) => name !== 'sign-in ways' });
  queries.getMutationCache().clear();
  notifications.clean();
}

/**
 * Ends the session and clears the data of its user, who is asked before if there is unsaved input. If it fails, a notification
 * says that the session is still valid.
 */
export function useSignOut(): { leave: () => void; isLeaving: boolean } {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const { forms, ask } = useContext(UnsavedContext);
  const { mutate, isPending } = useMutation({
    mutationKey: signOutKey,
    mutationFn: async () => {
      // The page stays until the sign-in page is loaded. Its queries would get a 401 meanwhile, so they are paused.
      onlineManager.setOnline(false);
      await queries.cancelQueries();
      await signOut();
    },
    networkMode: 'always',
    meta: { isShown: true },
    onSuccess: async () => {
      // The user has been asked. Without a session, the input could not be saved.
      await navigate({ to: '/sign-in', search: {}, ignoreBlocker: true });
      removeUserData(queries);
    },
    onSettled: () => onlineManager.setOnline(true),
    onError: ({ message }) =>
      notifications.show({
        title: 'You are still signed in',
        message: `Sign-out failed. ${message} Try again.`,
        color: 'red',
        autoClose: false,
      }),
  });
  const leave = () => (isAnyUnsaved({ forms }) ? ask('sign-out', mutate) : mutate());
  return { leave, isLeaving: isPending };
}
