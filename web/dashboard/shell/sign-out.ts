import { notifications } from '@mantine/notifications';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { signOut } from '../sign-in/queries.ts';

/** Ends the session and forgets what its user was shown. Where it cannot be ended, it says that it lives on. */
export function useSignOut(): { leave: () => void; isLeaving: boolean } {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const { mutate, isPending } = useMutation({
    mutationFn: signOut,
    onSuccess: async () => {
      await navigate({ to: '/sign-in', search: {} });
      queries.clear();
    },
    onError: ({ message }) =>
      notifications.show({
        title: 'You are still signed in',
        message: `Signing out failed. ${message} Try it again.`,
        color: 'red',
        autoClose: false,
      }),
  });
  return { leave: () => mutate(), isLeaving: isPending };
}
