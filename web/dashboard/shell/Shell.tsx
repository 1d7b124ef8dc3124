import {
  ActionIcon,
  AppShell,
  Badge,
  Box,
  Burger,
  Button,
  ColorSwatch,
  Group,
  Kbd,
  Menu,
  NavLink,
  SegmentedControl,
  Stack,
  Text,
  Tooltip,
  useMantineColorScheme,
} from '@mantine/core';
import { useDisclosure, useHotkeys } from '@mantine/hooks';
import { useQuery, useSuspenseQuery } from '@tanstack/react-query';
import {
  Link,
  Outlet,
  useMatchRoute,
  useNavigate,
  useRouteContext,
  useRouter,
  useRouterState,
} from '@tanstack/react-router';
import { lazy, Suspense, useEffect, useRef, useState } from 'react';
import { Dimmed } from '../../ui/Dimmed.tsx';
import {
  IconBook2,
  IconCheck,
  IconCode,
  IconExternalLink,
  IconLogout,
  IconSearch,
  IconSelector,
  IconSettings,
  IconUserCircle,
} from '../../ui/icons.tsx';
import { progressQuery, stepsLeft } from '../getting-started/queries.ts';
import { countProblems, healthQuery } from '../home/queries.ts';
import { NavigationLink } from '../links.tsx';
import { meQuery } from '../sign-in/queries.ts';
import { rememberEnvironment, useEnvironment } from './environment.ts';
import { LostConnection } from './LostConnection.tsx';
import { NoSuchEnvironmentPage } from './NoSuchPage.tsx';
import { pages } from './pages.ts';
import { commandKey, useShortcuts, useSingleKeys } from './shortcuts.ts';
import { useSignOut } from './sign-out.ts';
import { UnsavedGuard } from './UnsavedGuard.tsx';

// Loaded when they are first opened.
const Commands = lazy(async () => ({ default: (await import('./Commands.tsx')).Commands }));
const ShortcutsDialog = lazy(async () => ({
  default: (await import('./ShortcutsDialog.tsx')).ShortcutsDialog,
}));

/** The frame of the pages of a signed-in user: navigation, account and environment. */
export function Shell() {
  const { isKnown } = useRouteContext({ from: '/$environment' });
  return isKnown ? <Frame /> : <NoSuchEnvironmentPage />;
}

function Frame() {
  const environment = useEnvironment();
  const [isOpen, { toggle, close }] = useDisclosure();
  const [shortcutCalls, setShortcutCalls] = useState(0);
  const showShortcuts = () => setShortcutCalls((count) => count + 1);
  const [searchCalls, setSearchCalls] = useState(0);
  const search = () => setSearchCalls((count) => count + 1);
  useSearchKeys(searchCalls === 0, search);
  useShortcuts(showShortcuts);
  const path = useRouterState({ select: ({ location }) => location.pathname });
  const isNavigating = useRouterState({ select: ({ isLoading }) => isLoading });
  const main = useRef<HTMLElement>(null);
  // After the sign-in there is a former page; a loaded document leaves the focus at its start, also if a key was pressed.
  const router = useRouter();
  const formerPath = useRef(router.state.resolvedLocation?.pathname ?? path);
  useEffect(() => rememberEnvironment(environment), [environment]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new page closes the menu that led to it
  useEffect(close, [path]);
  // After a navigation, the focus moves to the new page, unless the page has focused a field.
  useEffect(() => {
    if (formerPath.current === path) return;
    formerPath.current = path;
    if (!document.activeElement?.matches('main input, main textarea'))
      main.current?.focus({ preventScroll: true });
  }, [path]);
  return (
    <AppShell
      header={{ height: 48 }}
      navbar={{ width: 248, breakpoint: 'sm', collapsed: { mobile: !isOpen } }}
      padding={{ base: 'md', md: 'lg' }}
    >
      <UnsavedGuard>
        <a className="skip" href="#main">
          Skip to the content
        </a>
        <AppShell.Header>
          <Group h="100%" px="md" gap="sm" wrap="nowrap">
            <Burger opened={isOpen} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Navigation" />
            <Link to="/" aria-label="Trellis, to the start">
              <Mark />
            </Link>
            <Text fw={650} visibleFrom="sm" aria-hidden>
              Trellis
            </Text>
            <Box w={1} h={24} bg="var(--mantine-color-default-border)" visibleFrom="sm" />
            <EnvironmentSwitch />
            <Box flex={1} />
            <Button
              variant="default"
              color="gray"
              visibleFrom="sm"
              size="sm"
              leftSection={<IconSearch size={16} />}
              rightSection={<Kbd size="xs">{commandKey} K</Kbd>}
              onClick={search}
            >
              Search
            </Button>
            <Tooltip label="Search">
              <ActionIcon
                hiddenFrom="sm"
                variant="subtle"
                color="gray"
                size="lg"
                onClick={search}
                aria-label="Search"
              >
                <IconSearch size={18} />
              </ActionIcon>
            </Tooltip>
            <UserMenu />
          </Group>
        </AppShell.Header>
        <AppShell.Navbar p="sm">
          <Navigation />
        </AppShell.Navbar>
        {isNavigating && <div className="navigating" />}
        <LostConnection />
        <AppShell.Main id="main" ref={main} tabIndex={-1}>
          <Outlet />
        </AppShell.Main>
        <Suspense>
          {searchCalls > 0 && <Commands calls={searchCalls} onShortcuts={showShortcuts} />}
          {shortcutCalls > 0 && <ShortcutsDialog calls={shortcutCalls} />}
        </Suspense>
      </UnsavedGuard>
    </AppShell>
  );
}

/** The keys of the search until it is loaded: then it has its own. */
function useSearchKeys(isOn: boolean, onSearch: () => void): void {
  const [hasSingleKeys] = useSingleKeys();
  useHotkeys(isOn ? [['mod + K', onSearch]] : [], []);
  useHotkeys(
    isOn && hasSingleKeys
      ? [
          ['/', onSearch],
          ['shift + /', onSearch],
        ]
      : [],
  );
}

function Mark() {
  return (
    <svg width="28" height="28" viewBox="0 0 32 32" aria-hidden="true" style={{ display: 'block' }}>
      <rect width="32" height="32" rx="8" fill="var(--mantine-primary-color-filled)" />
      <path
        d="M10 7v18M22 7v18M7 12h18M7 20h18"
        stroke="#fff"
        strokeWidth="2.6"
        strokeLinecap="round"
        fill="none"
      />
    </svg>
  );
}

function Navigation() {
  const environment = useEnvironment();
  const matches = useMatchRoute();
  const { data: health } = useQuery(healthQuery(environment));
  const problems = health && countProblems(health);
  // The pages that show the steps fetch them first. While some are left, each other page does, and a change that may do a step.
  const { data: progress, refetch } = useQuery({
    ...progressQuery(environment),
    enabled: ({ state: { data } }) => data !== undefined && stepsLeft(data).length > 0,
    refetchInterval: 30_000,
  });
  const left = progress && stepsLeft(progress).length;
  const path = useRouterState({ select: ({ location }) => location.pathname });
  // biome-ignore lint/correctness/useExhaustiveDependencies: a step is done on one page and seen on the next
  useEffect(() => {
    if (left !== undefined && left > 0) void refetch();
  }, [path]);
  const marks: { [Page in (typeof pages)[number]['to']]?: { count: number | undefined; is: string } } = {
    '/$environment/getting-started': { count: left, is: 'left' },
    '/$environment/integrations': { count: problems?.integrations, is: 'with errors' },
    '/$environment/connections': { count: problems?.connections, is: 'reconnect needed' },
    '/$environment/functions': { count: problems?.syncs, is: 'failing' },
    '/$environment/events': { count: problems?.endpoints, is: 'failing' },
  };
  return (
    <Stack component="nav" gap={2} h="100%" aria-label="Pages">
      {pages.map(({ to, label, icon: Icon }) => {
        const isHere = matches({ to, params: { environment }, fuzzy: true }) !== false;
        const { count = 0, is = '' } = marks[to] ?? {};
        return (
          <NavigationLink
            key={to}
            label={label}
            leftSection={<Icon size={18} stroke={1.7} />}
            rightSection={
              count > 0 && (
                <Badge
                  size="sm"
                  variant={is === 'left' ? 'light' : 'filled'}
                  color={is === 'left' ? 'gray' : 'red'}
                  role="img"
                  aria-label={`${count.toLocaleString()} ${is}`}
                >
                  {count > 999 ? '999+' : count}
                </Badge>
              )
            }
            active={isHere}
            aria-current={isHere ? 'page' : undefined}
            to={to}
            params={{ environment }}
            fw={isHere ? 600 : 450}
            noWrap
            bdrs="md"
          />
        );
      })}
      <NavLink
        mt="auto"
        href="/guides"
        target="_blank"
        label="Guides"
        leftSection={<IconBook2 size={18} stroke={1.7} />}
        rightSection={<IconExternalLink size={14} />}
        bdrs="md"
      />
      <NavLink
        href="/docs/"
        target="_blank"
        label="API reference"
        leftSection={<IconCode size={18} stroke={1.7} />}
        rightSection={<IconExternalLink size={14} />}
        bdrs="md"
      />
    </Stack>
  );
}

/** Selects the environment. The new environment opens the same list, never an item of the previous one. */
function EnvironmentSwitch() {
  const environment = useEnvironment();
  const { data: me } = useSuspenseQuery(meQuery());
  const navigate = useNavigate();
  const area = useRouterState({ select: ({ location }) => location.pathname.split('/')[2] });
  const open = (name: string) =>
    void navigate({ to: `/${encodeURIComponent(name)}/${area ?? 'home'}` as '/' });
  return (
    <Menu width={220} position="bottom-start">
      <Menu.Target>
        <Button
          variant="subtle"
          color="gray"
          px="xs"
          leftSection={<ColorSwatch size={10} color={colorOf(environment)} withShadow={false} />}
          rightSection={<IconSelector size={16} />}
          aria-label={`Environment: ${environment}`}
          maw={200}
        >
          {environment}
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Environment</Menu.Label>
        {me.environments.map(({ name, role }) => (
          <Menu.Item
            key={name}
            onClick={() => open(name)}
            leftSection={<ColorSwatch size={10} color={colorOf(name)} withShadow={false} />}
            rightSection={
              name === environment ? <IconCheck size={16} /> : role === 'viewer' ? 'viewer' : null
            }
          >
            {name}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}

/** Production has its own color. */
function colorOf(name: string): string {
  return /^prod/i.test(name) ? 'var(--mantine-color-red-6)' : 'var(--mantine-color-teal-6)';
}

function UserMenu() {
  const environment = useEnvironment();
  const { data: me } = useSuspenseQuery(meQuery());
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const { leave } = useSignOut();
  return (
    <Menu width={264} position="bottom-end">
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" radius="xl" aria-label="Your account">
          <IconUserCircle size={24} stroke={1.6} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Box px="sm" py={6}>
          <Text fw={600} size="sm" truncate>
            {me.name}
          </Text>
          <Dimmed truncate>{me.email}</Dimmed>
        </Box>
        <Menu.Divider />
        <Box px="sm" py={6}>
          <SegmentedControl
            fullWidth
            size="xs"
            aria-label="Colors"
            value={colorScheme}
            onChange={(value) => setColorScheme(value as typeof colorScheme)}
            data={[
              { value: 'light', label: 'Light' },
              { value: 'dark', label: 'Dark' },
              { value: 'auto', label: 'System' },
            ]}
          />
        </Box>
        {me.id !== 'local' && (
          <>
            <Menu.Divider />
            <Menu.Item
              leftSection={<IconSettings size={16} />}
              renderRoot={(props) => (
                <Link
                  {...props}
                  to="/$environment/settings"
                  params={{ environment }}
                  search={{ tab: 'account' }}
                />
              )}
            >
              Account settings
            </Menu.Item>
            <Menu.Item leftSection={<IconLogout size={16} />} onClick={leave}>
              Sign out
            </Menu.Item>
          </>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}
