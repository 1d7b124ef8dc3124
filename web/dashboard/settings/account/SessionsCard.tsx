import { Badge, Button, Card, Group, Stack, Text, Title } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { IconDeviceDesktop, IconDeviceMobile } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Loaded } from '../../../ui/Loaded.tsx';
import { LoadingRows } from '../../../ui/Loading.tsx';
import { RelativeTime } from '../../../ui/RelativeTime.tsx';
import { endOtherSessions, endSession, sessionsQuery } from './queries.ts';

/** Where one is signed in, and an end to it. */
export function SessionsCard() {
  const queries = useQueryClient();
  const query = useQuery({ ...sessionsQuery(), refetchInterval: 15_000 });
  const onSettled = () => queries.invalidateQueries({ queryKey: ['sessions'] });
  const onError = ({ message }: Error) => notifications.show({ title: 'Not ended', message, color: 'red' });
  const end = useMutation({ mutationFn: endSession, onSettled, onError });
  const endOthers = useMutation({ mutationFn: endOtherSessions, onSettled, onError });
  const others = query.data?.filter(({ isOwn }) => !isOwn).length ?? 0;
  return (
    <Card>
      <Stack gap="sm">
        <Group justify="space-between" align="flex-start">
          <Stack gap={2} flex="1 1 260px">
            <Title order={2}>Sessions</Title>
            <Text size="sm" c="dimmed">
              One lasts seven days from when it was last used.
            </Text>
          </Stack>
          {others > 0 && (
            <Button variant="default" loading={endOthers.isPending} onClick={() => endOthers.mutate()}>
              End all others
            </Button>
          )}
        </Group>
        <Loaded query={query} loading={<LoadingRows rows={2} height={56} />}>
          {(sessions) => (
            <Stack gap="xs">
              {sessions.map((session) => (
                <Group key={session.token} gap="sm" wrap="nowrap" justify="space-between" mih={48}>
                  <Group gap="sm" wrap="nowrap" miw={0}>
                    {/Mobile|Android|iPhone/.test(session.userAgent ?? '') ? (
                      <IconDeviceMobile size={22} stroke={1.5} className="rigid" aria-hidden />
                    ) : (
                      <IconDeviceDesktop size={22} stroke={1.5} className="rigid" aria-hidden />
                    )}
                    <Stack gap={0} miw={0}>
                      <Group gap={6}>
                        <Text size="sm" fw={550}>
                          {browserOf(session.userAgent)}
                        </Text>
                        {session.isOwn && <Badge color="green">this one</Badge>}
                      </Group>
                      <Text size="sm" c="dimmed" className="wrap">
                        {session.ipAddress !== undefined &&
                          session.ipAddress !== null &&
                          session.ipAddress !== '' &&
                          `${session.ipAddress}, `}
                        signed in <RelativeTime at={session.createdAt} />
                      </Text>
                    </Stack>
                  </Group>
                  {!session.isOwn && (
                    <Button
                      size="compact-sm"
                      variant="default"
                      flex="none"
                      loading={end.isPending && end.variables === session.token}
                      onClick={() => end.mutate(session.token)}
                    >
                      End
                    </Button>
                  )}
                </Group>
              ))}
            </Stack>
          )}
        </Loaded>
      </Stack>
    </Card>
  );
}

/** "Firefox on Windows": as much of the browser's own line as tells two apart. */
function browserOf(userAgent: string | null | undefined): string {
  const told = userAgent ?? '';
  const browser = /Edg\//.test(told)
    ? 'Edge'
    : /Firefox\//.test(told)
      ? 'Firefox'
      : /Chrome\//.test(told)
        ? 'Chrome'
        : /Safari\//.test(told)
          ? 'Safari'
          : told.split(/[ /]/)[0];
  const system = /Windows|Android|iPhone|iPad|Mac OS X|Linux/.exec(told)?.[0]?.replace('Mac OS X', 'macOS');
  if (browser === undefined || browser === '') return 'Unknown browser';
  return system === undefined ? browser : `${browser} on ${system}`;
}
