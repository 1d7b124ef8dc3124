import { Anchor, Stack, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import type { MutationCache } from '@tanstack/react-query';
import { Fault } from '../../api/client.ts';

/** Where a change was made: the form or the page, and its address. */
type Origin = { form: string; page: string; path: string };

/**
 * Shows each change that fails after its form or page was left: what it was, the reason, and the way back. `meta.isShown`: the
 * change shows its failure on every page. Changes of a user who has signed out are no longer in the cache, and are not shown.
 */
export function showFailedChanges(changes: MutationCache, open: (path: string) => void): void {
  const origins = new WeakMap<object, Origin>();
  const left = new WeakSet<object>();
  changes.subscribe((event) => {
    const { type, mutation } = event;
    if (type === 'observerRemoved') left.add(mutation);
    if (type === 'observerAdded') left.delete(mutation);
    if (type !== 'updated') return;
    if (event.action.type === 'pending' && !origins.has(mutation)) origins.set(mutation, originNow());
    const origin = origins.get(mutation);
    if (event.action.type !== 'error' || origin === undefined) return;
    if (!left.has(mutation) || mutation.meta?.isShown === true || !changes.getAll().includes(mutation))
      return;
    const error = event.action.error as Error;
    const reasons =
      error instanceof Fault ? error.fields.map(({ path, message }) => `${path} ${message}`) : [];
    notifications.show({
      title: `${origin.form.endsWith('?') ? 'Not done' : 'Not saved'}: ${origin.form}`,
      color: 'red',
      autoClose: false,
      message: (
        <Stack gap={6} align="flex-start">
          <Text size="sm" className="wrap">
            {[error.message, ...reasons].join(' ')}
          </Text>
          <Anchor component="button" size="sm" underline="always" onClick={() => open(origin.path)}>
            Back to {origin.page}
          </Anchor>
        </Stack>
      ),
    });
  });
}

function originNow(): Origin {
  const page = document.title.replace(/ · Trellis$/, '');
  const dialog = document.querySelector('[role=dialog] h2')?.textContent;
  const tab = document.querySelector('[role=tab][aria-selected=true]')?.textContent;
  return {
    form: dialog ?? (tab ? `${page}, ${tab}` : page),
    page,
    path: location.pathname + location.search,
  };
}
