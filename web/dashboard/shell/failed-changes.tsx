import { Anchor, Button, Group, Stack, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import type { MutationCache } from '@tanstack/react-query';
import { Fault } from '../../api/client.ts';

/** Where a change was made: the form or the page, and its address. */
type Origin = { form: string; page: string; path: string };

/**
 * Shows each change that fails after its form or page was left: what it was, the reason, and the way back. If a later attempt
 * may succeed, it can be sent again as the user entered it. `meta.isShown`: the change shows its failure on every page.
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
    if (!left.has(mutation) || mutation.meta?.isShown === true) return;
    const error = event.action.error as Error;
    const { status = 0, fields = [] } = error instanceof Fault ? error : { status: 400 };
    const reasons = fields.map(({ path, message }) => `${path} ${message}`);
    const hide = () => notifications.hide(id);
    const again = () => {
      hide();
      mutation.execute(mutation.state.variables).then(
        () => notifications.show({ message: `Saved: ${origin.form}`, color: 'green' }),
        () => {},
      );
    };
    const id = notifications.show({
      title: `${origin.form.endsWith('?') ? 'Not done' : 'Not saved'}: ${origin.form}`,
      color: 'red',
      autoClose: false,
      message: (
        <Stack gap={6} align="flex-start">
          <Text size="sm" className="wrap">
            {[error.message, ...reasons].join(' ')}
          </Text>
          <Group gap="sm">
            {(status === 0 || status >= 500) && (
              <Button size="compact-sm" variant="default" onClick={again}>
                Try again
              </Button>
            )}
            <Anchor
              component="button"
              size="sm"
              underline="always"
              onClick={() => {
                hide();
                open(origin.path);
              }}
            >
              Back to {origin.page}
            </Anchor>
          </Group>
        </Stack>
      ),
    });
  });
}

function originNow(): Origin {
  const page = document.title.replace(/ · Trellis$/, '');
  const dialog = document.querySelector('[role=dialog] h2')?.textContent;
  return { form: dialog ?? page, page, path: location.pathname + location.search };
}
